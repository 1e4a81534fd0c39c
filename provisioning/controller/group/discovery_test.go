package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/transaction"
)

// sky is a cloud whose responses a test sets.
type sky struct {
	cloudprovider.Provider
	found   cloudprovider.Discovery
	err     error
	missing []string
	advice  map[string]cloudprovider.Advice
	asked   int
}

func (s *sky) Discover(context.Context) (cloudprovider.Discovery, error) { return s.found, s.err }

func (s *sky) MissingPermissions(context.Context) ([]string, error) { return s.missing, nil }

func (s *sky) Advise(_ context.Context, groups []*v1alpha1.NodeGroup, _ int) (map[string]cloudprovider.Advice, error) {
	s.asked++
	return s.advice, nil
}

// offering returns an offering of an Auto Scaling group.
func offering(name, kind string) cloudprovider.Found {
	f := cloudprovider.Found{Name: name}
	f.Spec.Provider, f.Spec.MaxNodes, f.Spec.CapacityType, f.Spec.Zone = v1alpha1.ProviderAWS, 8, v1alpha1.Spot, "us-east-1a"
	f.Spec.AWS = &v1alpha1.AWSGroup{Region: "us-east-1", AutoScalingGroup: "gpus", InstanceType: kind, Subnet: "subnet-1",
		LaunchMethod: v1alpha1.AWSFleet}
	f.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("192"), "memory": resource.MustParse("2Ti"),
		gpu: resource.MustParse("8")}
	return f
}

// seeing runs a test beside a Discovery of the cloud. step starts the next list.
func seeing(t *testing.T, cloud *sky, objects []client.Object,
	test func(t *testing.T, kube client.Client, d *Discovery, step func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
		recorder := events.NewFakeRecorder(100)
		d := NewDiscovery(kube, map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderAWS: cloud}, recorder, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := d.Start(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		first := true
		test(t, kube, d, func() (told []string) {
			if !first {
				<-clock.RealClock{}.After(discoverEvery)
			}
			first = false
			synctest.Wait()
			for len(recorder.Events) > 0 {
				told = append(told, <-recorder.Events)
			}
			return told
		})
		cancel()
		<-ended
	})
}

// groupsOf returns the maximum size of each NodeGroup, by name.
func groupsOf(t *testing.T, kube client.Client) map[string]int32 {
	t.Helper()
	list := &v1alpha1.NodeGroupList{}
	if err := kube.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	out := map[string]int32{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Spec.MaxNodes
	}
	return out
}

func wantGroups(t *testing.T, what string, kube client.Client, want map[string]int32) {
	t.Helper()
	if diff := cmp.Diff(want, groupsOf(t, kube)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestNodeGroupsFollowTheCloud(t *testing.T) {
	p5, p4 := offering("gpus-p5", "p5.48xlarge"), offering("gpus-p4", "p4d.24xlarge")
	cloud := &sky{found: cloudprovider.Discovery{Groups: []cloudprovider.Found{p5, p4}}}
	seeing(t, cloud, nil, func(t *testing.T, kube client.Client, _ *Discovery, step func() []string) {
		step()
		wantGroups(t, "one for each offering", kube, map[string]int32{"gpus-p5": 8, "gpus-p4": 8})

		g := &v1alpha1.NodeGroup{}
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "gpus-p5"}, g); err != nil {
			t.Fatal(err)
		}
		g.Spec.IdleTimeout = &metav1.Duration{Duration: vanishedAfter}
		g.Spec.ScaledBy = v1alpha1.ScaledByClusterAutoscaler
		if err := kube.Update(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		p5.Spec.MaxNodes = 16
		cloud.found.Groups = []cloudprovider.Found{p5, p4}
		step()
		wantGroups(t, "the cloud's group has grown", kube, map[string]int32{"gpus-p5": 16, "gpus-p4": 8})
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "gpus-p5"}, g); err != nil || g.Spec.IdleTimeout == nil || g.Spec.ScaledBy == "" {
			t.Errorf("what the cloud says nothing of is lost: %v, %q, %v", g.Spec.IdleTimeout, g.Spec.ScaledBy, err)
		}

		cloud.err = errors.New("out of reach")
		for range vanishedAfter {
			step()
		}
		cloud.err, cloud.found.Groups = nil, []cloudprovider.Found{p4}
		for range vanishedAfter - 1 {
			step()
		}
		wantGroups(t, "a cloud out of reach has not lost its groups, nor one that misses one for a moment", kube,
			map[string]int32{"gpus-p5": 16, "gpus-p4": 8})
		told := step()
		wantGroups(t, "one that is gone for good goes", kube, map[string]int32{"gpus-p4": 8})
		if !slices.ContainsFunc(told, func(e string) bool { return strings.Contains(e, "GroupVanished") }) {
			t.Errorf("nobody was told: %q", told)
		}
	})
}

func TestWhatPeopleHaveMadeIsTheirs(t *testing.T) {
	p5 := offering("gpus-p5", "p5.48xlarge")
	byHand := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: p5.Spec}
	byHand.Spec.AWS = p5.Spec.AWS.DeepCopy()
	byHand.Spec.AWS.LaunchMethod, byHand.Spec.MaxNodes = v1alpha1.AWSReservation, 2
	named := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpus-p4"},
		Spec: v1alpha1.NodeGroupSpec{Provider: v1alpha1.ProviderKwok, MaxNodes: 1}}
	p4 := offering("gpus-p4", "p4d.24xlarge")
	cloud := &sky{found: cloudprovider.Discovery{
		Groups:  []cloudprovider.Found{p5, p4},
		Refused: []cloudprovider.Refused{{Group: "Old_ASG", Reason: "it has no launch template; give it one"}},
	}}
	seeing(t, cloud, []client.Object{byHand, named}, func(t *testing.T, kube client.Client, _ *Discovery, step func() []string) {
		told := strings.Join(step(), "\n")
		for range vanishedAfter {
			if again := step(); len(again) > 0 {
				t.Errorf("told again: %q", again)
			}
		}
		wantGroups(t, "as they were", kube, map[string]int32{"mine": 2, "gpus-p4": 1})
		for _, words := range []string{"DescribedByHand NodeGroup mine", "gpus-p4 was not made by Muster",
			"GroupRefused The group Old_ASG of aws", "it has no launch template; give it one"} {
			if !strings.Contains(told, words) {
				t.Errorf("nobody was told of %q:\n%s", words, told)
			}
		}
	})
}

func TestWarningsAndAdviceAreInTheStatus(t *testing.T) {
	p5, p4 := offering("gpus-p5", "p5.48xlarge"), offering("gpus-p4", "p4d.24xlarge")
	p5.Warnings = []cloudprovider.Warning{{Reason: cloudprovider.BornOpen, Message: "Pods may slip in"}}
	cloud := &sky{
		found:   cloudprovider.Discovery{Groups: []cloudprovider.Found{p5, p4}},
		advice:  map[string]cloudprovider.Advice{"gpus-p5": {Chance: 400, Source: "placement score 4 of 10"}},
		missing: []string{"ec2:CreateFleet"},
	}
	seeing(t, cloud, nil, func(t *testing.T, _ client.Client, d *Discovery, step func() []string) {
		step()
		step()
		now := clock.RealClock{}.Now()
		status := func(name string) (string, *v1alpha1.Advice) {
			g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: name}}
			d.renew(g, now)
			c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionSound)
			if c == nil {
				return "", g.Status.Advice
			}
			return string(c.Status) + " " + c.Reason + ": " + c.Message, g.Status.Advice
		}
		sound, advice := status("gpus-p5")
		if want := "False BornOpen: Pods may slip in. Muster may not call ec2:CreateFleet"; sound != want {
			t.Errorf("condition is %q, want %q", sound, want)
		}
		if advice == nil || advice.Chance != 400 || advice.Machines != advised {
			t.Errorf("advice is %v", advice)
		}
		if sound, _ := status("gpus-p4"); !strings.HasPrefix(sound, "False MissingPermission") {
			t.Errorf("condition of the other is %q", sound)
		}
		if sound, _ := status("by-hand"); sound != "" {
			t.Errorf("condition of a group that was not discovered is %q", sound)
		}
		if cloud.asked != 1 {
			t.Errorf("advice was asked for %d times in a minute, want once", cloud.asked)
		}
	})
}

func TestGroupsWithALaunchInFlightAreWrittenForTheirPolicy(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	key := types.NamespacedName{Namespace: "muster-system", Name: "muster-launching"}
	there := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Data: map[string]string{"left-by-a-crash": ""}}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there).Build()
	m := model.New(clock.RealClock{}, transaction.KnownClasses)
	clk := testingclock.NewFakeClock(noon)
	c := &LaunchMarker{Client: kube, Live: kube, ConfigMap: key, Model: m, Clock: clk}
	for _, g := range []struct{ name, label string }{{"gpus-p5", "gpus"}, {"gpus-p4", "gpus"}, {"unlabelled", ""}} {
		ng := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: g.name, Generation: 1}}
		if g.label != "" {
			ng.Spec.Template.Labels = map[string]string{v1alpha1.CloudGroupLabel: g.label}
		}
		m.Set(ng)
	}
	version := 0
	launch := func(uid types.UID, phase transaction.AttemptPhase, groups ...string) {
		a := transaction.Attempt{Number: 1, Phase: phase, Started: noon}
		for _, name := range groups {
			a.Launches = append(a.Launches, planner.GroupCount{Group: name, Count: 1})
		}
		version++
		r := &provreq.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid,
			ResourceVersion: fmt.Sprint(version)}}
		r.Spec.ProvisioningClassName = transaction.ClassAtomicScaleUp
		r.Status.ProvisioningClassDetails = map[string]provreq.Detail{transaction.AttemptDetail: provreq.Detail(a.Encode())}
		m.Set(r)
	}
	for _, step := range []struct {
		name string
		do   func()
		want map[string]string
	}{
		{"what a crash has left is cleared", func() {}, nil},
		{"a launch begins", func() { launch("a", transaction.Launching, "gpus-p5", "unlabelled") }, map[string]string{"gpus": ""}},
		{"another in the same cloud's group", func() { launch("b", transaction.Launching, "gpus-p4") }, map[string]string{"gpus": ""}},
		{"one is rolled back", func() { launch("a", transaction.RollingBack, "gpus-p5") }, map[string]string{"gpus": ""}},
		{"the other is done", func() { launch("b", transaction.Done, "gpus-p4") }, nil},
		{"a launch begins again", func() { launch("c", transaction.Launching, "gpus-p5") }, map[string]string{"gpus": ""}},
		{"etcd is restored", func() {
			restored := there.DeepCopy()
			restored.ResourceVersion = ""
			if err := kube.Update(t.Context(), restored); err != nil {
				t.Fatal(err)
			}
			clk.Step(readEvery)
		}, map[string]string{"gpus": ""}},
	} {
		step.do()
		if err := c.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := &corev1.ConfigMap{}
		if err := kube.Get(t.Context(), key, got); err != nil {
			t.Fatal(err)
		}
		if len(got.Data) == 0 {
			got.Data = nil
		}
		if diff := cmp.Diff(step.want, got.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

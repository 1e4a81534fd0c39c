package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// account is a cloud of two groups whose machines run at once.
type account struct {
	cloudprovider.Discovery
	missing []string

	mu       sync.Mutex
	alive    map[string]cloudprovider.Machine
	launches int
	observe  func(cloudprovider.Machine)
}

func newAccount() *account {
	a := &account{alive: map[string]cloudprovider.Machine{}}
	for name, price := range map[string]string{"cheap": "1.50", "dear": "98"} {
		g := cloudprovider.Found{Name: name}
		g.Spec.MaxNodes, g.Spec.Zone, g.Spec.CapacityType = 4, "us-east-1a", v1alpha1.OnDemand
		g.Spec.PricePerHour = new(resource.MustParse(price))
		g.Spec.Template.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("1")}
		a.Groups = append(a.Groups, g)
	}
	return a
}

func (a *account) Discover(context.Context) (cloudprovider.Discovery, error) { return a.Discovery, nil }

func (a *account) MissingPermissions(context.Context) ([]string, error) { return a.missing, nil }

func (a *account) Launch(_ context.Context, r cloudprovider.LaunchRequest) (out []cloudprovider.Machine, _ error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.launches++
	for i := range r.Count {
		m := cloudprovider.Machine{Name: fmt.Sprint(r.Group.Name, i), Group: r.Group.Name, Launch: r.Token, State: cloudprovider.Running}
		a.alive[m.Name] = m
		out = append(out, m)
	}
	return out, nil
}

func (a *account) Terminate(_ context.Context, _ string, names []string) error {
	for _, name := range names {
		a.mu.Lock()
		m := a.alive[name]
		delete(a.alive, name)
		a.mu.Unlock()
		m.State = cloudprovider.Gone
		a.observe(m)
	}
	return nil
}

func (a *account) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	a.observe = observe
	synced()
	<-ctx.Done()
	return nil
}

func (a *account) connect(context.Context, configuration.Clouds, cloudprovider.Cluster) (map[v1alpha1.Provider]cloudprovider.Provider,
	error) {
	return map[v1alpha1.Provider]cloudprovider.Provider{v1alpha1.ProviderAWS: a}, nil
}

func TestCloudCheck(t *testing.T) {
	refused := []cloudprovider.Refused{{Group: "old", Reason: "it has no launch template"}}
	for _, tc := range []struct {
		name     string
		change   func(*account, *cloudCheck)
		answer   string
		err      string
		says     []string
		launches int
	}{
		{name: "all is well", says: []string{"Permissions: all are there",
			"cheap   us-east-1a   OnDemand        8 cpu, 1 nvidia.com/gpu   4     1.50"}},
		{name: "a permission is missing", err: errFound.Error(), says: []string{"ec2:CreateFleet"},
			change: func(a *account, _ *cloudCheck) { a.missing = []string{"ec2:CreateFleet"} }},
		{name: "a group is refused", err: errFound.Error(), says: []string{"old: it has no launch template"},
			change: func(a *account, _ *cloudCheck) { a.Refused = refused }},
		{name: "a rehearsal in the cheapest group", answer: "y\n", launches: 1,
			change: func(_ *account, c *cloudCheck) { c.launch, c.maxUSD = 2, 2 },
			says: []string{"Launch 2 machines of NodeGroup cheap, for 1.50 USD at most", "launch         0s  the cloud accepted 2 machines",
				"2 of 2 machines run", "2 machines were terminated; nothing of the launch was listed"}},
		{name: "a rehearsal that is declined", answer: "\n", change: func(_ *account, c *cloudCheck) { c.launch, c.maxUSD = 2, 2 },
			says: []string{"Nothing was launched."}},
		{name: "a rehearsal that costs too much", err: "--max-usd: 2 machines of NodeGroup dear may cost 98.00 USD",
			change: func(_ *account, c *cloudCheck) { c.launch, c.maxUSD, c.group = 2, 50, "dear" }},
		{name: "a group that is not there", err: "--group: there is no group gone; use one of",
			change: func(_ *account, c *cloudCheck) { c.launch, c.maxUSD, c.group = 2, 50, "gone" }},
		{name: "more machines than any group may have", err: "--launch: no group has a known price and may have 9 machines",
			change: func(_ *account, c *cloudCheck) { c.launch, c.maxUSD = 9, 500 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount()
				c := &cloudCheck{connect: a.connect, output: "text", region: "us-east-1", cluster: "prod", timeout: 15 * time.Minute}
				if tc.change != nil {
					tc.change(a, c)
				}
				kube := fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}).Build()
				var out, progress bytes.Buffer
				err := c.run(t.Context(), kube, v1alpha1.ProviderAWS, strings.NewReader(tc.answer), &out, &progress)
				if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
					t.Errorf("the error is %v, want %q", err, tc.err)
				}
				for _, part := range tc.says {
					if !strings.Contains(out.String(), part) {
						t.Errorf("the report does not say %q:\n%s", part, out.String())
					}
				}
				if a.launches != tc.launches || len(a.alive) > 0 {
					t.Errorf("%d launches, want %d; left are %v", a.launches, tc.launches, a.alive)
				}
			})
		})
	}
}

func TestTheReportOfACloudCheckIsJSON(t *testing.T) {
	a := newAccount()
	c := &cloudCheck{connect: a.connect, output: "json", region: "us-east-1", cluster: "prod"}
	kube := fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}).Build()
	var out, progress bytes.Buffer
	if err := c.run(t.Context(), kube, v1alpha1.ProviderAWS, nil, &out, &progress); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || len(r.Groups) != 2 || r.Cluster != "uid" || r.Refused == nil {
		t.Errorf("%v: the report is %s", err, out.String())
	}
}

func TestFlagsOfACloudCheck(t *testing.T) {
	var connect Connect = func(context.Context, configuration.Clouds, cloudprovider.Cluster) (map[v1alpha1.Provider]cloudprovider.Provider,
		error) {
		return nil, errors.New("not reached")
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{}, "takes a cloud (aws or gcp), and got 0 arguments"},
		{[]string{"azure"}, `invalid argument "azure"`},
		{[]string{"aws", "--launch", "2"}, "--max-usd: give what"},
		{[]string{"aws", "--launch", "-2"}, "--launch: -2 machines"},
		{[]string{"aws", "--output", "yaml"}, `--output: "yaml" is not supported`},
		{[]string{"aws", "--timeout", "5s"}, "--timeout: machines need longer than 5s"},
		{[]string{"aws", "--launch", "1", "--max-usd", "3", "-o", "json"}, "--yes: needed"},
	} {
		cmd := NewCommand(connect)
		cmd.SetArgs(append([]string{"cloud-check"}, tc.args...))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("muster cloud-check %v: %v, want %q", tc.args, err, tc.want)
		}
	}
	c := &cloudCheck{output: "text"}
	if _, _, err := c.clouds(v1alpha1.ProviderGCP); err == nil || !strings.Contains(err.Error(), "provisioning.clouds.gcp.project") ||
		!strings.Contains(err.Error(), "--project") {
		t.Errorf("without a project the error is %v", err)
	}
}

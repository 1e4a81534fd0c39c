package sandbox

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws"
	"github.com/muster-dev/muster/cloudprovider/gcp"
	"github.com/muster-dev/muster/kwok/cloudsim/server"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/transaction"
)

func TestTheCloudsOfASandboxAreThoseOfTheSimulator(t *testing.T) {
	c, err := server.Read(clouds)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(c, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
}

// TestTheFirstJobOnEveryOffering of a sandbox with clouds: nodes register with the taints of the discovered offering. So the
// message of a plain job names the taints before any machine is bought, and a job that tolerates them gets its machines.
func TestTheFirstJobOnEveryOffering(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	c, err := server.Read(clouds)
	if err != nil {
		t.Fatal(err)
	}
	served, err := server.New(c, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	url := map[v1alpha1.Provider]string{}
	for name, handler := range served.Handlers {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		url[name] = s.URL
	}
	none := func(context.Context) ([]*v1alpha1.NodeGroup, error) { return nil, nil }
	const uid = "0a0a0a0a-0000-4000-8000-000000000001"
	onAWS, err := aws.New(t.Context(), aws.Config{Region: c.AWS.Region, Cluster: "sandbox", ClusterUID: uid,
		Endpoint: url[v1alpha1.ProviderAWS], Groups: none, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	onGCP, err := gcp.New(t.Context(), gcp.Config{Project: c.GCP.Project, Cluster: "sandbox", ClusterUID: uid,
		Endpoint: url[v1alpha1.ProviderGCP], Groups: none, Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	tainted := map[v1alpha1.Provider][]corev1.Taint{
		v1alpha1.ProviderAWS: c.AWS.Templates[0].Taints, v1alpha1.ProviderGCP: c.GCP.Templates[0].Node.Taints,
	}
	offerings := 0
	for name, cloud := range map[v1alpha1.Provider]cloudprovider.Discoverer{v1alpha1.ProviderAWS: onAWS, v1alpha1.ProviderGCP: onGCP} {
		found, err := cloud.Discover(t.Context())
		if err != nil || len(found.Refused) > 0 {
			t.Fatalf("%s: %v, refused %v", name, err, found.Refused)
		}
		for _, f := range found.Groups {
			offerings++
			t.Run(f.Name, func(t *testing.T) {
				if diff := cmp.Diff(tainted[name], f.Spec.Template.Taints); diff != "" {
					t.Errorf("taints (-of nodes +discovered):\n%s", diff)
				}
				m := model.New(clock.RealClock{}, transaction.KnownClasses)
				m.Set(&v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: f.Name, UID: "uid", ResourceVersion: "1"}, Spec: f.Spec})
				plan := func(tolerations ...corev1.Toleration) planner.Verdict {
					pod := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Tolerations: tolerations, Containers: []corev1.Container{{Name: "worker",
						Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
							Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}}}}}
					gang := state.Gang{Namespace: "default", Name: "default/first",
						PodSets: []state.PodSet{state.NewPodSet("default", "main", 4, pod, fit.Objects{})}}
					return planner.Plan(m.Snapshot(clock.RealClock{}.Now()), gang, state.DefaultPolicy(state.AtomicScaleUp))
				}
				if v := plan(); v.Outcome != planner.Never || !strings.Contains(v.Message(), "does not tolerate its taint nvidia.com/gpu") {
					t.Errorf("the plain job has %v: %s", v.Outcome, v.Message())
				}
				if v := plan(corev1.Toleration{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}); v.Outcome != planner.Launch {
					t.Errorf("a job that tolerates the taint has %v: %s", v.Outcome, v.Message())
				}
			})
		}
	}
	if want := len(c.Pools); offerings < want {
		t.Errorf("%d offerings were discovered, want one for each of %d pools at least", offerings, want)
	}
}

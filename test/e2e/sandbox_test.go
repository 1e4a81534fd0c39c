package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/test/testbed"
)

// TestTheDemoShowsItsStories runs the demo as a new user does, on each of the clouds.
func TestTheDemoShowsItsStories(t *testing.T) {
	t.Parallel()
	for _, cloud := range []string{"kwok", "aws", "gcp"} {
		t.Run(cloud, func(t *testing.T) {
			t.Parallel()
			clusters.take(t)
			name := fmt.Sprintf("demo-%s-%d", cloud, os.Getpid())
			out, err := exec.CommandContext(t.Context(), os.Getenv(testbed.SandboxVariable), "demo", "--name", name, "--cloud",
				cloud).CombinedOutput()
			if err != nil {
				t.Errorf("the demo failed: %v\n%s", err, out)
			}
		})
	}
}

// pausedWhileAPodComes: what does not use Muster does not need it.
func pausedWhileAPodComes(s *site) {
	s.paused(func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: s.Name, Labels: map[string]string{testbed.SiteLabel: s.Name}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
		}}
		room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10")}
		node.Status.Allocatable, node.Status.Capacity = room, room
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "ordinary"}}
		j.Spec.Template.Spec = s.podSpec()
		j.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		s.Create(node, j)
		s.complete(j)
		s.Delete(node)
	})
}

package templates

import (
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestInvalidMarks on the pods of a job are reported before it has machines (Kueue 0.20, 13679).
func TestInvalidMarks(t *testing.T) {
	for want, change := range map[string]func(*kueue.PodSet){
		"":                              func(*kueue.PodSet) {},
		"metadata.labels: Invalid":      func(s *kueue.PodSet) { s.Template.Labels["a"] = "not a label" },
		"metadata.annotations: Invalid": func(s *kueue.PodSet) { s.Template.Annotations["not a key"] = "1" },
		"spec.nodeSelector: Invalid":    func(s *kueue.PodSet) { s.Template.Spec.NodeSelector = map[string]string{"pool": "a b"} },
	} {
		s := kueue.PodSet{Name: "main"}
		s.Template.Labels, s.Template.Annotations = map[string]string{"app.example.com/name": "x_1"}, map[string]string{"a": "anything at all"}
		change(&s)
		got := InvalidMarks([]kueue.PodSet{s})
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 ||
			!strings.Contains(got[0], "podSet main") || !strings.Contains(got[0], want)) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

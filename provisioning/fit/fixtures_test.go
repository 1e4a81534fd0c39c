package fit

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// template has labels, written app=x, and a spec in YAML; a spec without containers
// gets one.
func template(t testing.TB, podLabels, spec string) *corev1.PodTemplateSpec {
	t.Helper()
	out := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: set(podLabels)}}
	parse(t, spec, &out.Spec)
	if len(out.Spec.Containers) == 0 {
		out.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	return out
}

func parse(t testing.TB, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// set reads a=b c=d.
func set(text string) map[string]string {
	out := map[string]string{}
	for _, pair := range strings.Fields(text) {
		k, v, _ := strings.Cut(pair, "=")
		out[k] = v
	}
	return out
}

// newPod is a Pod of podSet w of two pods in namespace team.
func newPod(t testing.TB, podLabels, spec string, objects Objects) *Pod {
	t.Helper()
	p, refusal := NewPod("team", "w", 2, template(t, podLabels, spec), objects)
	if refusal.Refused() {
		t.Fatalf("refused: %+v", refusal)
	}
	return p
}

// running is a pod in a namespace with labels and a spec in YAML.
func running(t testing.TB, namespace, podLabels, spec string) *Running {
	t.Helper()
	return ReadRunning(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: set(podLabels)},
		Spec:       template(t, podLabels, spec).Spec,
	})
}

// cluster is Objects from manifests; two CSI drivers have limits.
func cluster(t testing.TB, manifests string) Objects {
	t.Helper()
	claims, volumes := map[string]*corev1.PersistentVolumeClaim{}, map[string]*corev1.PersistentVolume{}
	classes, drivers := map[string]*storagev1.StorageClass{}, map[string]*storagev1.CSIDriver{}
	for _, text := range strings.Split(manifests, "---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
			t.Fatal(err)
		}
		switch meta.Kind {
		case "PersistentVolumeClaim":
			read(t, text, claims)
		case "PersistentVolume":
			read(t, text, volumes)
		case "StorageClass":
			read(t, text, classes)
		case "CSIDriver":
			read(t, text, drivers)
		case "":
		default:
			t.Fatalf("kind %s", meta.Kind)
		}
	}
	return Objects{
		Claim:        func(_, name string) *corev1.PersistentVolumeClaim { return claims[name] },
		Volume:       func(name string) *corev1.PersistentVolume { return volumes[name] },
		StorageClass: func(name string) *storagev1.StorageClass { return classes[name] },
		CSIDriver:    func(name string) *storagev1.CSIDriver { return drivers[name] },
		Limited: func(driver string) bool {
			return driver == "limited.csi.example" || driver == "pd.csi.storage.gke.io"
		},
	}
}

func read[T any, P interface {
	*T
	GetName() string
}](t testing.TB, text string, into map[string]P) {
	t.Helper()
	o := P(new(T))
	parse(t, text, o)
	into[o.GetName()] = o
}

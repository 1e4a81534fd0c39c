package stream

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// decodedBy decodes a list.
func decodedBy(t *testing.T, s *shared[kueue.PodSet], text string) []kueue.PodSet {
	t.Helper()
	var out []kueue.PodSet
	if err := s.decode(jsontext.NewDecoder(bytes.NewBufferString(text)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEqualListsAreKeptOnce(t *testing.T) {
	s := newShared[kueue.PodSet]()
	text := func(count int) string {
		return fmt.Sprintf(`[{"name":"a","count":%d},{"name":"b","count":2},{"name":"c","count":2}]`, count)
	}
	first, second, other := decodedBy(t, s, text(1)), decodedBy(t, s, text(1)), decodedBy(t, s, text(3))
	if &first[0] != &second[0] || len(second) != 3 || second[1].Name != "b" {
		t.Errorf("one text makes two lists: %v and %v", first, second)
	}
	if &first[0] == &other[0] || other[0].Count != 3 {
		t.Errorf("another text makes the same list: %v", other)
	}
	if longer := append(first, kueue.PodSet{Name: "x"}); &longer[0] == &first[0] {
		t.Error("an append to one list writes behind that of another object")
	}
	for _, none := range []string{`[]`, `null`} {
		if out := decodedBy(t, s, none); len(out) > 0 || (out == nil) != (none == "null") {
			t.Errorf("%s is decoded as %#v", none, out)
		}
	}
	if len(s.lists) != 2 {
		t.Errorf("%d lists are known, want 2", len(s.lists))
	}
	runtime.KeepAlive([][]kueue.PodSet{first, other})
}

// TestListsThatNobodyHasAreForgotten, so that the cache of texts grows only with the objects in use.
func TestListsThatNobodyHasAreForgotten(t *testing.T) {
	s := newShared[kueue.PodSet]()
	kept := decodedBy(t, s, `[{"name":"kept","count":1}]`)
	for i := range 100 {
		decodedBy(t, s, fmt.Sprintf(`[{"name":"gone-%d","count":1}]`, i))
	}
	known := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.lists)
	}
	for range 1000 {
		if known() == 1 {
			break
		}
		runtime.GC() // cleanups run some time after it
		runtime.Gosched()
	}
	if n := known(); n != 1 {
		t.Errorf("%d lists are known while one is kept", n)
	}
	if again := decodedBy(t, s, `[{"name":"kept","count":1}]`); &again[0] != &kept[0] {
		t.Error("the one that is kept is not found")
	}
}

// TestEventsShareWhatTheirObjectsRun: the three versions of a Workload that a cache sees have their pod sets once, and so have two
// Workloads of one template.
func TestEventsShareWhatTheirObjectsRun(t *testing.T) {
	w := kueue.Workload{}
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2}}
	w.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "train"}}
	w.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{Name: "main", Count: new(int32(2))}}}
	var got [2]kueue.Workload
	for i := range got {
		w.Name = fmt.Sprint("w-", i)
		text, err := json.Marshal(&w)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &got[i], decoding); err != nil {
			t.Fatal(err)
		}
	}
	if &got[0].Spec.PodSets[0] != &got[1].Spec.PodSets[0] || got[1].Spec.PodSets[0].Template.Spec.Containers[0].Image != "train" {
		t.Error("the pod sets are kept twice")
	}
	if &got[0].Status.Admission.PodSetAssignments[0] != &got[1].Status.Admission.PodSetAssignments[0] {
		t.Error("what the pod sets were assigned is kept twice")
	}
	if got[0].Name == got[1].Name {
		t.Error("the names are the same")
	}
}

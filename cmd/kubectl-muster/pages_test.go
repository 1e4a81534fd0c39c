package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

var (
	// sampleBlock is a block of a page, which may be part of a list.
	sampleBlock = regexp.MustCompile("(?ms)^( *)```(yaml|text)\n(.*?)^ *```$")
	// inCluster is the first line of objects of another cluster.
	inCluster = regexp.MustCompile(`^# In cluster (\w+)`)
)

// sample is a block of a page: objects in YAML, or text that says what follows from them.
type sample struct {
	isText bool
	text   string
}

// samplesOf are the blocks of a page.
func samplesOf(t *testing.T, path string) (out []sample) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sampleBlock.FindAllStringSubmatch(string(text), -1) {
		block := strings.TrimPrefix(strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n"), "\n")
		out = append(out, sample{isText: m[2] == "text", text: block})
	}
	return out
}

// neverReady is the image of pods that never become Ready.
const neverReady = "does-not-exist"

// samplePage is a cluster that the samples of a page are applied to, one after another. Cycles run the code that Muster runs; their
// decisions take effect at once.
type samplePage struct {
	now      time.Time
	settings view.Settings
	// queueing are the settings of the queues, which settings has, too.
	queueing config.Config
	objects  []client.Object
	// workers are the objects of other clusters.
	workers map[string][]client.Object
	// created numbers the Workloads.
	created int
}

// TestConceptPagesKeepTheirPromises applies the YAML of each page of concepts, and of tasks, in its order. A block of text after it has to
// be what follows: a table of jobs, after a time if its first line is like "30m later", or else what `kubectl muster simulate` answers.
func TestConceptPagesKeepTheirPromises(t *testing.T) {
	paths, err := filepath.Glob("../../docs/concepts/*.md")
	if err != nil {
		t.Fatal(err)
	}
	run := 0
	paths = append(paths, "../../docs/tasks.md")
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			blocks := samplesOf(t, path)
			page := &samplePage{now: noon, settings: view.DefaultSettings(), workers: map[string][]client.Object{}}
			page.objects = []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "ns"}}}
			promised := false
			for i, b := range blocks {
				if b.isText {
					continue
				}
				if i+1 < len(blocks) && blocks[i+1].isText && !isTable(blocks[i+1].text) {
					promised = true
					page.same(t, blocks[i+1].text, page.simulated(t, b.text))
					continue
				}
				page.apply(t, b.text)
				for _, then := range blocks[i+1:] {
					if !then.isText {
						break
					}
					promised = true
					page.same(t, then.text, page.states(t, then.text))
				}
			}
			if len(blocks) > 0 && !promised {
				t.Error("the page has samples, and says of none what follows")
			}
			run += len(blocks)
		})
	}
	if run < 20 {
		t.Errorf("the pages have %d blocks: they are not found any more", run)
	}
}

// isTable reports whether a block is a table of jobs.
func isTable(text string) bool {
	_, table, later := strings.Cut(text, " later\n")
	return later && strings.HasPrefix(table, "NAME") || strings.HasPrefix(text, "NAME")
}

func (s *samplePage) same(t *testing.T, promised, got string) {
	t.Helper()
	if squeezed(promised) != squeezed(got) {
		t.Errorf("the page promises\n%s\nbut what follows is\n%s", promised, got)
	}
}

// apply creates the objects of a block, or replaces those of their names.
func (s *samplePage) apply(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "kind: Configuration\n") {
		file := filepath.Join(t.TempDir(), "muster.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		settings, err := view.LoadSettings(file)
		if err != nil {
			t.Fatal(err)
		}
		loaded, _, err := configuration.Load(file, deploy.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		s.settings, s.queueing = settings, loaded.Queueing.Config
		return
	}
	found, around := sorted(t, text)
	if m := inCluster.FindStringSubmatch(text); m != nil {
		s.workers[m[1]] = append(s.workers[m[1]], around...)
		return
	}
	for _, o := range around {
		s.objects = slices.DeleteFunc(s.objects, func(had client.Object) bool {
			return fmt.Sprintf("%T", had) == fmt.Sprintf("%T", o) && had.GetName() == o.GetName()
		})
		s.objects = append(s.objects, o)
	}
	for _, n := range s.submissions(t, found) {
		w := n.Workload
		s.created++
		w.UID, w.CreationTimestamp, w.Generation = types.UID(fmt.Sprintf("workload-%03d", s.created)), metav1.NewTime(s.now), 1
		s.objects = append(s.objects, w)
		s.now = s.now.Add(time.Second)
	}
	s.settle(t)
}

// manifestsOf reads a sample as commands read a file.
func manifestsOf(t *testing.T, text string) []manifest {
	t.Helper()
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sample.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readManifests(file, nil, scheme)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// sorted are the jobs of a block and the objects around them, as the API server would have them.
func sorted(t *testing.T, text string) (found []manifest, around []client.Object) {
	t.Helper()
	for _, m := range manifestsOf(t, text) {
		if m.kind = kindOfJob(m.object, kinds.All()); m.kind != nil {
			found = append(found, m)
			continue
		}
		switch o := m.object.(type) {
		case *kueue.LocalQueue:
			o.Namespace = "default"
		case *corev1.Node:
			o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			o.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
		case *kueue.AdmissionCheck:
			o.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
		m.object.SetUID(types.UID(kindOf(m.object) + "/" + m.object.GetName()))
		around = append(around, m.object)
	}
	return found, around
}

func (s *samplePage) submissions(t *testing.T, found []manifest) []view.Submission {
	t.Helper()
	for _, m := range found {
		m.object.SetUID(types.UID("job-" + m.object.GetName()))
	}
	cluster := &fakeCluster{mayNot: true}
	for _, o := range s.objects {
		if _, is := o.(*kueue.WorkloadPriorityClass); is {
			cluster.objects = append(cluster.objects, o)
		}
	}
	out, err := submissionsOf(t.Context(), cluster.client(t), s.picture(s.objects), found, "default")
	if err != nil {
		t.Fatal(err)
	}
	for i := range out {
		out[i].Notes = nil
	}
	return out
}

func (s *samplePage) picture(objects []client.Object) *view.Picture {
	return view.New(clocktesting.NewFakePassiveClock(s.now), s.settings, &view.Reading{Objects: objects})
}

// states are the jobs once nothing changes any more, later if the block says so.
func (s *samplePage) states(t *testing.T, promised string) string {
	t.Helper()
	var out strings.Builder
	if after, _, later := strings.Cut(promised, " later\n"); later {
		d, err := time.ParseDuration(after)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(d)
		s.settle(t)
		fmt.Fprintf(&out, "%s later\n", after)
	}
	p := newPrinter(&out, asTable)
	var rows [][]string
	for _, l := range s.picture(s.objects).Jobs("") {
		rows = append(rows, []string{l.Name, string(l.State), l.LocalQueue, fmt.Sprint(l.Pods), l.Words})
	}
	if err := p.rows("", []string{"NAME", "STATE", "QUEUE", "PODS", "WHY"}, rows); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// settle runs cycles until one decides nothing.
func (s *samplePage) settle(t *testing.T) {
	t.Helper()
	for range 20 {
		if !s.cycle() {
			return
		}
	}
	t.Fatal("the samples do not come to rest in 20 cycles")
}

// cycle carries out what a cycle decides, and reports whether it decided anything. The pods of a job that starts are Ready at once, and
// those of a job that is evicted are gone.
func (s *samplePage) cycle() (acted bool) {
	queues := queueing.New(s.queueing, planner.Plan)
	// A State counts nothing in a queue that no cycle has seen.
	for _, workloads := range []bool{true, false} {
		for _, o := range s.objects {
			if _, is := o.(*kueue.Workload); is == workloads {
				queues.Set(o)
			}
		}
	}
	queues.Nodes.MarkKnown()
	for _, v := range queues.Cycle(s.now) {
		w := v.Workload.Object.DeepCopy()
		if v.Status != nil {
			w.Status = *v.Status.DeepCopy()
		}
		if v.Action == lifecycle.Deactivate {
			w.Spec.Active = new(false)
		}
		ready := metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue, Reason: kueue.WorkloadStarted}
		if w.Spec.PodSets[0].Template.Spec.Containers[0].Image == neverReady {
			ready.Status, ready.Reason = metav1.ConditionFalse, kueue.WorkloadWaitForStart
		}
		switch {
		case workload.IsEvicted(w) && workload.HasQuota(w):
			w.Status = *workload.Released(w, s.now)
		case workload.IsAdmitted(w):
			ready.LastTransitionTime = metav1.NewTime(s.now)
			apimeta.SetStatusCondition(&w.Status.Conditions, ready)
		}
		i := slices.IndexFunc(s.objects, func(o client.Object) bool { return o.GetUID() == w.UID })
		s.objects[i] = w
		acted = acted || v.Acts()
	}
	return acted
}

// simulated is the first line of the answer of `kubectl muster simulate` for the jobs of a block, which are not created.
func (s *samplePage) simulated(t *testing.T, text string) string {
	t.Helper()
	var workers []view.Worker
	for _, o := range s.objects {
		if config, ok := o.(*kueue.MultiKueueConfig); ok {
			for i, name := range config.Spec.Clusters {
				workers = append(workers, view.Worker{Name: name, Places: map[string]int{config.Name: i},
					Picture: s.picture(slices.Concat(s.objects[:1], s.workers[name]))})
			}
		}
	}
	found, _ := sorted(t, text)
	var out strings.Builder
	for _, x := range s.picture(s.objects).Simulate(s.submissions(t, found), nil, workers...) {
		fmt.Fprintf(&out, "%s %s/%s %s.\n", x.Kind, x.Namespace, x.Name, x.Summary)
	}
	return out.String()
}

package scenario

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// APIVersion and Kind that a file has to name.
const (
	APIVersion = "scenario.muster.dev/v1alpha1"
	Kind       = "Scenario"
)

// Scenario is a file. Its zero values are those that a field has where it is missing.
type Scenario struct {
	metav1.TypeMeta `json:",inline"`
	// Description is a sentence for people.
	Description string `json:"description"`
	// Seed of all that is drawn: the same seed gives the same Jobs at the same times.
	Seed uint64 `json:"seed,omitempty"`
	// Nodes are machines that are there from the beginning and stay.
	Nodes []Nodes `json:"nodes,omitempty"`
	// Groups of machines that may be bought. Their pool scripts, spec.kwok, say how
	// long machines boot, when there are none, and when they are taken away.
	Groups []v1alpha1.NodeGroup `json:"groups,omitempty"`
	// Operators of other projects that run beside the control plane, for Jobs of their kinds.
	Operators []string `json:"operators,omitempty"`
	// Objects that are created before the first Job, in this order: queues, flavors,
	// policies, whatever the cluster's API takes.
	Objects []unstructured.Unstructured `json:"objects,omitempty"`
	// Teams are namespaces that are all alike.
	Teams *Teams `json:"teams,omitempty"`
	// Arrivals of Jobs, and of jobs of other kinds, which are meant by the word as well.
	Arrivals []Arrival `json:"arrivals"`
	// Ends says when the run is over.
	Ends Ends `json:"ends"`
	// Faults are what goes wrong with Muster and the cluster's control plane meanwhile,
	// from the first moment at which a Job may come on.
	Faults *faults.Plan `json:"faults,omitempty"`

	document *document.Document
}

// Where says, for messages, on which line a field of the file stands.
func (s *Scenario) Where(path *field.Path) string {
	return fmt.Sprintf("line %d: %s", s.document.Line(path.String()), path)
}

// Nodes are machines of one kind.
type Nodes struct {
	// Name of the nodes, each with its number after it.
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// Capacity of each, all of it for pods. Where pods is missing it is 110.
	Capacity corev1.ResourceList `json:"capacity"`
	Labels   map[string]string   `json:"labels,omitempty"`
	Taints   []corev1.Taint      `json:"taints,omitempty"`
}

// Teams are so many namespaces called Name-000, Name-001 and so on.
type Teams struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// Objects that are created for each team; TeamWord in any text of them is
	// replaced by the name of its namespace.
	Objects []unstructured.Unstructured `json:"objects,omitempty"`
}

// TeamWord stands for the name of a team's namespace.
const TeamWord = "$(team)"

// Arrival is a stream of Jobs.
type Arrival struct {
	// Name of the Jobs, each with its number after it.
	Name string `json:"name"`
	// Namespace of the Jobs, default where it is missing. TeamWord deals them out to
	// the teams in turn.
	Namespace string `json:"namespace,omitempty"`
	// Queue is the LocalQueue that they are for. Jobs of no queue start at once.
	Queue string `json:"queue,omitempty"`
	Count int32  `json:"count"`
	When  When   `json:"when,omitempty"`
	// Shapes that each Job is drawn from, by their weights.
	Shapes []Shape `json:"shapes"`
}

// When Jobs arrive: all at once, at a steady pace, or at random.
type When struct {
	// From is when the first may come.
	From metav1.Duration `json:"from,omitempty"`
	// Every is the pause between two; 0 means that there is none.
	Every metav1.Duration `json:"every,omitempty"`
	// PerHour is the mean number of Jobs that come at random in an hour, as the
	// clicks of a Geiger counter do.
	PerHour int32 `json:"perHour,omitempty"`
	// BusiestAt has PerHour rise and fall over a day: at this time of the day twice
	// as many come, twelve hours from it none.
	BusiestAt *metav1.Duration `json:"busiestAt,omitempty"`
}

// Shape of a Job. All pods of a Job are alike; those of an object are as it says.
type Shape struct {
	// Weight is how many of the Jobs have this shape, beside the weights of others;
	// 0 means 1.
	Weight int32 `json:"weight,omitempty"`
	// Object is a job of another kind, without a name: those of the arrival are named as
	// its Jobs are. RunForWord and NameWord in any text of it are replaced. One that serves until it is deleted is
	// deleted RunFor after all its pods run.
	Object *unstructured.Unstructured `json:"object,omitempty"`
	// Pods of the Job. They and Requests are missing where an Object has pods of its own; where that is a Pod, so many
	// like it are a group.
	Pods int32 `json:"pods,omitempty"`
	// Requests of each pod.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	RunFor   RunTime             `json:"runFor"`
	// Together has the run of all pods begin once all of them run, as that of a gang
	// whose members need each other. It costs one write a pod.
	Together bool `json:"together,omitempty"`
	// Retries is how many pods may fail until the Job does. A pod that is lost with
	// its machine has not failed: another takes its place.
	Retries int32 `json:"retries,omitempty"`
	// Priority is the name of a WorkloadPriorityClass.
	Priority string `json:"priority,omitempty"`
	// Deadline of the Job from its start, its activeDeadlineSeconds. Unset means none.
	Deadline *metav1.Duration `json:"deadline,omitempty"`
	// MaximumExecution is what the Job says to its queue that it takes at most.
	// Unset says nothing.
	MaximumExecution *metav1.Duration    `json:"maximumExecution,omitempty"`
	NodeSelector     map[string]string   `json:"nodeSelector,omitempty"`
	Tolerations      []corev1.Toleration `json:"tolerations,omitempty"`
	// MayNotFit has Jobs taken that no machines have room for, for a scenario that
	// shows what becomes of them. The bound leaves them out.
	MayNotFit bool `json:"mayNotFit,omitempty"`
	// Annotations of the Job, for example those that bound what it may cost.
	Annotations map[string]string `json:"annotations,omitempty"`
	// PodAnnotations are those of its pods, for example those that request one domain of a Topology.
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`

	// sets are the pods of the Object, where they can be read from it.
	sets []podSet
}

// Words in the texts of an object: RunForWord stands for how long it runs, as a duration, and
// NameWord for its name, from which those of the objects in an AppWrapper are made.
const (
	RunForWord = "$(runFor)"
	NameWord   = "$(name)"
)

// RunTime is how long a Job's pods run, drawn once for each Job: AtLeast, and a share
// of Jitter between none and all, and an exponential time of the mean Mean; AtMost in
// all, where it is set.
type RunTime struct {
	AtLeast metav1.Duration `json:"atLeast,omitempty"`
	Jitter  metav1.Duration `json:"jitter,omitempty"`
	Mean    metav1.Duration `json:"mean,omitempty"`
	AtMost  metav1.Duration `json:"atMost,omitempty"`
}

// Ends is when a run is over: once all Jobs have ended, but not later than AtMost. Where
// all have, the machines that stand idle then are still seen to go.
type Ends struct {
	AtMost metav1.Duration `json:"atMost"`
}

// Submission is one Job.
type Submission struct {
	Namespace, Name, Queue string
	// At is the time of its creation, from the beginning.
	At time.Duration
	// RunFor is how long its pods run.
	RunFor time.Duration
	Shape  *Shape
}

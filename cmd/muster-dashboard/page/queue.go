package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/queueing/quota"
	workloads "github.com/muster-dev/muster/queueing/workload"
)

// line is a pending Workload, from which a row is made.
type line struct {
	view.QueueLine
	requests string
	// text is what a search matches, in lower case.
	text string
}

// linesOf returns all pending Workloads by ClusterQueue, in queue order. Those that can never start come first.
func linesOf(p *view.Picture) []line {
	_, refused := p.NotInLine()
	lines := slices.Concat(refused, p.Lines())
	slices.SortStableFunc(lines, func(a, b view.QueueLine) int {
		switch {
		case a.Never == b.Never:
			return 0
		case a.Never:
			return -1
		default:
			return 1
		}
	})
	out := make([]line, len(lines))
	requests := make(map[workload]string, len(p.Workloads))
	for _, w := range p.Workloads {
		if !workloads.IsFinished(w) {
			requests[workload{w.Namespace, w.Name}] = requestsOf(w)
		}
	}
	for i, l := range lines {
		out[i] = line{QueueLine: l, requests: requests[workload{l.Namespace, l.Workload}]}
		out[i].text = strings.ToLower(strings.Join([]string{l.Namespace, l.Name, l.Workload, l.ClusterQueue, l.Words, l.Message}, "\n"))
	}
	return out
}

// workload is the name of one.
type workload struct{ namespace, name string }

// requestsOf reports how many pods a Workload has, and how many devices they request, by the last
// part of the resource name; without devices, how many cores.
func requestsOf(w *kueue.Workload) string {
	pods, sum := 0, nodegroups.Resources{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		pods += int(ps.Count)
		sum.Add(fit.TemplateRequests(&ps.Template.Spec), int(ps.Count))
	}
	out := []string{strconv.Itoa(pods) + " pods"}
	if pods == 1 {
		out[0] = "1 pod"
	}
	for _, name := range sum.Names() {
		if nodegroups.Extended(name) {
			out = append(out, fmt.Sprintf("%s %s", nodegroups.Quantity(name, sum[name]), path.Base(string(name))))
		}
	}
	if cpu := sum[corev1.ResourceCPU]; len(out) == 1 && cpu > 0 {
		out = append(out, nodegroups.Quantity(corev1.ResourceCPU, cpu)+" cpu")
	}
	return strings.Join(out, ", ")
}

// queueSummary is the view of the queues without the pending Workloads.
type queueSummary struct {
	Pending  int             `json:"pending"`
	Never    int             `json:"never"`
	Admitted int             `json:"admitted"`
	Reasons  []reasonCount   `json:"reasons"`
	Queues   []queueCard     `json:"queues"`
	Forecast forecastSummary `json:"forecast"`
}

// reasonCount is the number of Workloads with the same reason. Workloads that can never start are counted under one reason.
type reasonCount struct {
	Reason string `json:"reason"`
	Words  string `json:"words"`
	Count  int    `json:"count"`
}

// reasonNever is the reason shown for all Workloads that can never start.
const reasonNever = "Never"

// reasonOf is what a line is counted and chosen by.
func (l *line) reasonOf() string {
	if l.Never {
		return reasonNever
	}
	return l.Reason
}

// queueCard is one ClusterQueue.
type queueCard struct {
	Name     string `json:"name"`
	Cohort   string `json:"cohort,omitempty"`
	Pending  int    `json:"pending"`
	Admitted int32  `json:"admitted"`
	// Stopped says why it admits nothing; empty if it admits.
	Stopped string  `json:"stopped,omitempty"`
	Usage   []usage `json:"usage"`
}

// usage is a queue's quota of one resource of a flavor, as numbers and as text.
type usage struct {
	Flavor       string  `json:"flavor"`
	Resource     string  `json:"resource"`
	Used         float64 `json:"used"`
	Nominal      float64 `json:"nominal"`
	UsedText     string  `json:"usedText"`
	NominalText  string  `json:"nominalText"`
	BorrowedText string  `json:"borrowedText,omitempty"`
	// TemporaryText says until when the quota holds; empty if that is for good.
	TemporaryText string `json:"temporaryText,omitempty"`
}

func (s *Server) queue(_ context.Context, d *decision, _ *http.Request) (queueSummary, error) {
	out := queueSummary{Pending: len(d.lines), Reasons: reasonsOf(d.lines), Queues: d.cards(), Forecast: s.forecastSummary()}
	for i := range d.lines {
		if d.lines[i].Never {
			out.Never++
		}
	}
	for _, w := range d.picture.Workloads {
		if workloads.IsAdmitted(w) && !workloads.IsFinished(w) {
			out.Admitted++
		}
	}
	return out, nil
}

// reasonsOf counts the reasons: the Workloads that can never start first, then the most frequent.
func reasonsOf(lines []line) []reasonCount {
	counts := map[string]*reasonCount{}
	out := []reasonCount{}
	for i := range lines {
		l := &lines[i]
		reason, words := l.reasonOf(), l.Words
		if l.Never {
			words = view.CannotStart
		}
		if counts[reason] == nil {
			counts[reason] = &reasonCount{Reason: reason, Words: words}
		}
		counts[reason].Count++
	}
	for _, c := range counts {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b reasonCount) int {
		if (a.Reason == reasonNever) != (b.Reason == reasonNever) {
			if a.Reason == reasonNever {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Reason, b.Reason))
	})
	return out
}

// cards are the ClusterQueues, the most pending first.
func (d *decision) cards() []queueCard {
	waiting := map[string]int{}
	for i := range d.lines {
		waiting[d.lines[i].ClusterQueue]++
	}
	out := []queueCard{}
	for _, cq := range d.picture.ClusterQueues {
		status, ok := d.statuses[cq.Name]
		if !ok {
			status = cq.Status
		}
		card := queueCard{Name: cq.Name, Cohort: string(cq.Spec.CohortName), Pending: waiting[cq.Name], Admitted: status.AdmittedWorkloads,
			Usage: usageOf(cq, status.FlavorsReservation, d.picture.Now)}
		if c := apimeta.FindStatusCondition(status.Conditions, kueue.ClusterQueueActive); c != nil && c.Status == metav1.ConditionFalse {
			card.Stopped = c.Message
		}
		out = append(out, card)
	}
	slices.SortFunc(out, func(a, b queueCard) int { return cmp.Or(b.Pending-a.Pending, strings.Compare(a.Name, b.Name)) })
	return out
}

// usageOf lists reserved against nominal quota, in the order of the spec.
func usageOf(cq *kueue.ClusterQueue, reserved []kueue.FlavorUsage, now time.Time) []usage {
	type key struct {
		flavor   kueue.ResourceFlavorReference
		resource corev1.ResourceName
	}
	used := map[key]kueue.ResourceUsage{}
	for _, f := range reserved {
		for _, r := range f.Resources {
			used[key{f.Name, r.Name}] = r
		}
	}
	out := []usage{}
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for _, r := range f.Resources {
				u := used[key{f.Name, r.Name}]
				one := usage{
					Flavor: string(f.Name), Resource: string(r.Name), Used: u.Total.AsApproximateFloat64(), Nominal: r.NominalQuota.AsApproximateFloat64(),
					UsedText: u.Total.String(), NominalText: r.NominalQuota.String(),
				}
				if !u.Borrowed.IsZero() {
					one.BorrowedText = u.Borrowed.String()
				} else if over := difference(u.Total, r.NominalQuota); over.Sign() > 0 {
					one.BorrowedText = over.String()
				}
				if t := quota.TemporaryFor(cq, quota.FlavorResource{Flavor: f.Name, Resource: r.Name}); t != nil {
					one.TemporaryText = view.Temporarily(t, now)
				}
				out = append(out, one)
			}
		}
	}
	return out
}

func difference(a, b resource.Quantity) resource.Quantity {
	a.Sub(b)
	return a
}

// rowPage is a page of pending Workloads.
type rowPage struct {
	Total int `json:"total"`
	From  int `json:"from"`
	// Axis is from now to the end of the range of the expected starts.
	Axis [2]int64 `json:"axis"`
	Rows []row    `json:"rows"`
}

// row is a pending Workload.
type row struct {
	Queue     string `json:"queue"`
	Position  int    `json:"position"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload"`
	Priority  int32  `json:"priority,omitempty"`
	Created   int64  `json:"created"`
	Reason    string `json:"reason"`
	Words     string `json:"words"`
	Message   string `json:"message,omitempty"`
	Requests  string `json:"requests,omitempty"`
	Next      int64  `json:"next,omitempty"`
	// Foreseen says whether its start is known: see the constants. The times are those of
	// forecast.Estimate.
	Foreseen string `json:"foreseen,omitempty"`
	Start    int64  `json:"start,omitempty"`
	Early    int64  `json:"early,omitempty"`
	Late     int64  `json:"late,omitempty"`
	// After says after which jobs of unknown run time it starts.
	After string `json:"after,omitempty"`
}

// What is known of a start; empty where there is no forecast.
const (
	foreseenYes    = "yes"
	foreseenNo     = "no"     // it is not in the forecast, since it came later
	foreseenBeyond = "beyond" // it is not within the horizon
	foreseenAfter  = "after"  // it is after jobs of unknown run time
)

// mostRows are sent at once.
const mostRows = 500

func (s *Server) rows(_ context.Context, d *decision, r *http.Request) (rowPage, error) {
	q := r.URL.Query()
	from, err := number(q.Get("from"), 0)
	if err != nil {
		return rowPage{}, refusal{http.StatusBadRequest, "from: " + err.Error()}
	}
	count, err := number(q.Get("count"), 100)
	if err != nil {
		return rowPage{}, refusal{http.StatusBadRequest, "count: " + err.Error()}
	}
	f := s.foreseen.Load()
	list := chosen(d.lines, q.Get("queue"), q.Get("why"), strings.ToLower(q.Get("q")))
	if err := order(list, q.Get("order"), f); err != nil {
		return rowPage{}, err
	}
	out := rowPage{Total: len(list), From: from, Axis: f.axis(s.config.Clock.Now()), Rows: []row{}}
	from = min(from, len(list))
	for _, l := range list[from:min(len(list), from+min(count, mostRows))] {
		out.Rows = append(out.Rows, f.row(l))
	}
	return out, nil
}

// number reads one that is not negative.
func number(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a number from 0 up", text)
	}
	return n, nil
}

// hasTurn is the reason shown for Workloads without one.
const hasTurn = "Turn"

// chosen are the lines of a queue, a reason and with a text; empty is any.
func chosen(lines []line, queue, why, text string) []*line {
	out := make([]*line, 0, len(lines))
	for i := range lines {
		l := &lines[i]
		if (queue == "" || queue == l.ClusterQueue) && (why == "" || why == cmp.Or(l.reasonOf(), hasTurn)) &&
			(text == "" || strings.Contains(l.text, text)) {
			out = append(out, l)
		}
	}
	return out
}

// order sorts lines that are in the order of the queues.
func order(list []*line, by string, f *foreseen) error {
	switch by {
	case "":
	case "age":
		slices.SortStableFunc(list, func(a, b *line) int { return a.Created.Compare(b.Created) })
	case "start":
		starts := make(map[*line]time.Time, len(list))
		for _, l := range list {
			starts[l] = f.sortedBy(l)
		}
		slices.SortStableFunc(list, func(a, b *line) int { return starts[a].Compare(starts[b]) })
	default:
		return refusal{http.StatusBadRequest, fmt.Sprintf("order: %q is not supported: leave it out, or use age or start", by)}
	}
	return nil
}

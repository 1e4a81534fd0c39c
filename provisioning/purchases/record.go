// Package purchases counts the machines that are bought for a request, so that no loop buys without end, whatever its cause: machines
// that vanish, that others terminate, that never join, or that are launched again by a fault of Muster's own. Every machine that was seen
// under a launch of the request is counted once, by name. What a call may have made without being seen counts until it is seen, or for good
// if it never is. A request that has bought twice what it needs stops, for a pause that doubles each time:
//
//	buying ── 2 × needed ─▶ stopped ── the pause is over ─▶ once more as many as are needed ─▶ stopped ─▶ …
//	                           └─ an administrator accepts what was bought ─▶ buying
//
// Machines that a refusal of the cloud explains are not counted against the request: they came with a launch that the cloud granted in
// part, and the backoff of their NodeGroup bounds them. Machines that the cloud has put in other domains than the gang requires do count,
// since each try costs their price. Machines of a NodeGroup where they failed do not keep the request from trying another one: what it
// may buy, it may buy in each NodeGroup.
package purchases

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

// Detail is the key of the record in status.provisioningClassDetails.
const Detail = "muster.dev/purchases"

const (
	// firstPause and longestPause bound the time for which a request that has bought too much buys nothing.
	firstPause   = 10 * time.Minute
	longestPause = 6 * time.Hour
	// excess is the multiple of the machines that it needs which a request may buy.
	excess = 2
	// markLength is the length of the mark of a machine in the record, and mostMarks the number of marks: a value of
	// provisioningClassDetails has at most 32,768 characters. More machines are only counted.
	markLength = 4
	mostMarks  = 7000
)

// Uncalled is the value of Record.By if no process has made the missing calls since they were recorded.
const Uncalled = "-"

// Record is what has been bought for a request. Its status is written with it at every other change. The zero value is nothing.
type Record struct {
	// Needed is the number of machines of the request's largest attempt.
	Needed int `json:"needed,omitempty"`
	// Marks are the marks of the machines, each markLength characters, in order. Earlier is the number of machines before them.
	Marks   string `json:"machines,omitempty"`
	Earlier int    `json:"earlier,omitempty"`
	// Unseen is the number of machines that may have been created by calls without an answer, or whose answer was lost with a
	// process. Open lists most of their calls, in the format that Expect writes.
	Unseen int    `json:"unseen,omitempty"`
	Open   string `json:"open,omitempty"`
	// By is the process that makes the calls of the attempt in flight, or Uncalled. Before is the number of machines seen by then
	// that are not the attempt's, or that it has replaced since.
	By     string `json:"by,omitempty"`
	Before int    `json:"before,omitempty"`
	// Explained is the number of machines that the cloud made before it refused the launch.
	Explained int `json:"explained,omitempty"`
	// Failed is the number of machines of attempts that failed without a refusal, in the NodeGroups of FailedIn, which has the mark of
	// each.
	Failed   int    `json:"failed,omitempty"`
	FailedIn string `json:"failedIn,omitempty"`
	// Vain is the cost of machines that never served the gang, by cause, in the format that Wasted writes.
	Vain string `json:"vain,omitempty"`
	// Accepted is the number of unexplained machines that no longer count: the gang has run with them.
	Accepted int `json:"accepted,omitempty"`
	// Stops is how often the request was stopped, and Until the end of the last pause. At the last stop, Spent was the number of machines,
	// and FailedBefore was Failed.
	Stops        int       `json:"stops,omitempty"`
	Until        time.Time `json:"until,omitzero"`
	Spent        int       `json:"spent,omitempty"`
	FailedBefore int       `json:"failedBefore,omitempty"`
}

// Of reads the record. If it was edited and cannot be read, it counts as none.
func Of(r *provreq.ProvisioningRequest) (out Record) {
	if json.Unmarshal([]byte(r.Status.ProvisioningClassDetails[Detail]), &out) != nil {
		return Record{}
	}
	return out
}

// AcceptedBy is the number of machines up to which an administrator has accepted the purchases, by annotation.
func AcceptedBy(r *provreq.ProvisioningRequest) int {
	n, err := strconv.Atoi(r.Annotations[v1alpha1.AcceptedPurchasesAnnotation])
	if err != nil {
		return 0
	}
	return n
}

// Encode renders the record.
func (p *Record) Encode() string {
	out, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("purchases cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return string(out)
}

// Mark returns the mark of a machine in the record. If its name is reused by a machine that started later, that is another machine.
func Mark(group, name string, again time.Time) string {
	id := group + "/" + name
	if !again.IsZero() {
		id += "@" + strconv.FormatInt(again.Unix(), 10)
	}
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:markLength]
}

// Bought is the number of machines without an explanation.
func (p *Record) Bought() int { return p.Seen() + p.Unseen - p.Explained }

// Seen is the number of machines that were seen.
func (p *Record) Seen() int { return p.Earlier + len(p.Marks)/markLength }

// With adds machines that were seen. A machine that was counted as unseen is no longer counted as such.
func (p Record) With(made []Machine) Record {
	known := map[string]bool{}
	for mark := range split(p.Marks) {
		known[mark] = true
	}
	for _, m := range made {
		if !known[m.Mark] {
			known[m.Mark] = true
			p.Marks += m.Mark
			p = p.found(m)
		}
	}
	if more := len(p.Marks)/markLength - mostMarks; more > 0 {
		p.Marks, p.Earlier = p.Marks[more*markLength:], p.Earlier+more
	}
	return p
}

// FailIn counts so many machines of an attempt that failed in these NodeGroups.
func (p Record) FailIn(machines int, groups []string) Record {
	p.Failed += machines
	for _, group := range groups {
		if !p.hasFailedIn(group) {
			p.FailedIn += Mark(group, "", time.Time{})
		}
	}
	return p
}

func (p *Record) hasFailedIn(group string) bool {
	mark := Mark(group, "", time.Time{})
	for failed := range split(p.FailedIn) {
		if failed == mark {
			return true
		}
	}
	return false
}

// split returns the marks one by one.
func split(marks string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(marks) >= markLength && yield(marks[:markLength]) {
			marks = marks[markLength:]
		}
	}
}

// Most is the number of unexplained machines that the request may have at that time to buy more in these NodeGroups. Failures in other
// NodeGroups do not count.
func (p *Record) Most(now time.Time, groups []string) int {
	elsewhere, since := p.Failed, p.Failed-p.FailedBefore
	if slices.ContainsFunc(groups, p.hasFailedIn) {
		elsewhere, since = 0, 0
	}
	most := p.Accepted + excess*p.Needed + elsewhere
	if p.Stops > 0 && !now.Before(p.Until) {
		most = max(most, p.Spent+p.Needed+since)
	}
	return most
}

// StopAt returns the record after the request is stopped at that time. It does not change during a pause.
func (p Record) StopAt(now time.Time) Record {
	if p.Stops > 0 && now.Before(p.Until) && p.Bought() <= p.Spent {
		return p
	}
	pause := firstPause
	for range min(p.Stops, 10) {
		pause *= 2
	}
	p.Stops++
	p.Until, p.Spent = now.Add(min(pause, longestPause)+time.Second).UTC().Truncate(time.Second), p.Bought()
	p.FailedBefore = p.Failed
	return p
}

// String says why the request is stopped, and what ends that.
func (p *Record) String() string {
	unseen := ""
	if p.Unseen > 0 {
		unseen = fmt.Sprintf(" (%d of them perhaps: the answer to their launch was lost, and they were never listed)", p.Unseen)
	}
	return fmt.Sprintf("%s were bought%s for a gang that needs %d, so nothing is bought before %s, and then at most %d more. Machines are "+
		"bought again if they vanish, are terminated by others, do not join, are not in one domain as required or are not used in time: "+
		"the events of the request and of its NodeGroups show which. To continue now, correct the cause and set the annotation %s=%d on "+
		"the request",
		text.Machines(p.Bought()), unseen, p.Needed, p.Until.UTC().Format(time.RFC3339), p.Needed,
		v1alpha1.AcceptedPurchasesAnnotation, p.Bought())
}

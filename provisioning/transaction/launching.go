package transaction

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// daemonWait bounds how long a young node waits for the pods of its
	// DaemonSets.
	daemonWait = time.Minute
	// mostLost is the maximum number of lost machines of an attempt that are replaced, since their names are recorded. The attempt also
	// pays for at most twice the machines that it requests.
	mostLost = 64
)

// nextLaunching waits for the attempt's machines and, if it shares machines of others, for their remaining room. Then the gang claims its
// room.
func nextLaunching(r *Request, v View) Step {
	if !v.Now.Before(r.deadline()) {
		return rollBack(r, v, AttemptFailure{Message: "the request has expired (parameter ValidUntilSeconds)"})
	}
	s, joined := launching(r, v)
	if !joined {
		if s = claimIdle(r, v, s); s.Do == Rest && s.Condition.Type != "" {
			s.Do = Report
		}
		return s
	}
	look := r.Policy
	look.Class = state.CheckCapacity
	rest, _ := remaining(r, v.Snapshot)
	// The launch is paid for, and the gang may use what is kept for attempts that started later.
	plan := planner.Unbudgeted(v.counting(v.Upcoming.Before(r.UID)).Snapshot, rest, look)
	if plan.Outcome == planner.Fits {
		return claim(r, v, plan, ReasonCapacityProvisioned)
	}
	if s, apart := gatherAgain(r, v); apart {
		return s
	}
	if len(r.Attempt.Shares) > 0 {
		if next, ok := nextShared(r, v, s); ok {
			return next
		}
	}
	f := blame(r, v)
	f.Message += ": " + plan.Message()
	return rollBack(r, v, f)
}

// launching returns the next step of the attempt in flight, until all of its machines have joined. The condition of a Rest says what keeps
// a Ready node from being used.
func launching(r *Request, v View) (s Step, joined bool) {
	if len(r.Missing) > 0 {
		return rollBack(r, v, AttemptFailure{Message: fmt.Sprintf("the PodTemplates %q were deleted", r.Missing)}), false
	}
	if lost := newlyLost(r, v); len(lost) > 0 {
		return replace(r, v, lost), false
	}
	if left := misplaced(r, v); len(left) > 0 {
		return Step{Do: Terminate, Attempt: r.Attempt, Terminate: left}, false
	}
	s = Step{Do: Rest, Attempt: r.Attempt, At: r.deadline()}
	if r.Status == Provisioned {
		s.At = time.Time{}
	}
	joined = true
	progress := progressOf(r, v)
	for _, c := range r.Attempt.Calls(r.UID) {
		g := v.FindGroup(c.Group)
		if g == nil {
			return rollBack(r, v, failure(v, c, v1alpha1.Config, "the NodeGroup was deleted")), false
		}
		p := progress[c.Key()]
		if p.made < c.Count {
			s.Do = LaunchMachines
			s.Launch = append(s.Launch, r.together(c, levelIn(r, v, c.Group)))
			p.waitsFor = fmt.Sprintf("the cloud has made %d", p.made)
		}
		want := c.Count - p.lost
		if p.joined >= want {
			continue
		}
		joined = false
		if u, is := v.Unanswered[c.Key()]; is && p.nothingMade(g) {
			until := u.Since.Add(answeredWithin)
			if !v.Now.Before(until) {
				return rollBack(r, v, u.failure(v, c)), false
			}
			s.At = when.Earliest(s.At, until)
		}
		if p.waitsFor == "" {
			p.waitsFor = fmt.Sprintf("%s have not registered a node", text.Machines(want-p.registered))
		}
		if p.undeclared != "" {
			f := failure(v, c, v1alpha1.Config, "%s", p.undeclared)
			f.Taints = p.taints
			return rollBack(r, v, f), false
		}
		began, timeout, field := p.timeout(c, g)
		deadline := v.countingOnce(began, timeout).Add(timeout)
		if !v.Now.Before(deadline) && v.records(c) {
			s.At = when.Earliest(s.At, v.Now.Add(sparedAgain))
			continue
		}
		if !v.Now.Before(deadline) {
			class := v1alpha1.Timeout
			switch {
			case p.queued && p.made < c.Count:
				class = v1alpha1.Stockout // the cloud's queue had no machines for it
			case p.nothingMade(g):
				class = v1alpha1.Outage // no machine has failed to join
			}
			f := failure(v, c, class, "%d of %s were ready within %s (%s); %s", p.joined, text.Machines(want), timeout, field, p.waitsFor)
			if p.registered >= want && p.unplaced {
				f.Level = levelIn(r, v, c.Group)
			}
			return rollBack(r, v, f), false
		}
		s.At = when.Earliest(s.At, deadline, p.again)
		if p.blocked != "" && s.Condition.Type == "" && r.Status != Provisioned {
			s.Condition = r.attempting(r.Attempt, "waits for %s of group %s: %s", text.Machines(want), c.Group, p.blocked)
		}
	}
	if s.Do == LaunchMachines {
		return buy(r, v, s, progress), false
	}
	return s, joined && s.Do == Rest
}

// buy returns the step that launches machines, after the machines that were made before have been recorded. If the request has bought too
// much, it stops: the machines of the attempt vanish as they are made.
func buy(r *Request, v View, s Step, progress map[CallKey]*progress) Step {
	missing := 0
	for _, c := range s.Launch {
		missing += c.Count - progress[c.Key()].made
	}
	p := r.announce(r.bought(v, r.Attempt.machines()), v, progress)
	p.Before = max(0, p.Seen()-made(progress)) // machines that have vanished are launched again
	switch {
	case p.Bought()+missing > p.Most(v.Now, r.Attempt.groups()):
		s = rollBack(r, v, failure(v, s.Launch[0], v1alpha1.Lost, "machines of the attempt vanished after they had been made"))
		s.Purchases = new(afterFailure(p, r, v, s.Attempt.Failure))
	case p.Marks != r.Purchases.Marks || p.By != r.Purchases.By || p.Before != r.Purchases.Before:
		s = Step{Do: Count, Attempt: r.Attempt, Purchases: &p}
	}
	return s
}

// records reports whether the records of the cluster are more likely wrong than the machines of the call, which run, have no node and
// are many: a person decides.
func (v View) records(c Call) bool {
	return v.Spared[c.Group] && slices.ContainsFunc(v.Machines, func(m cloudprovider.Machine) bool {
		return m.Launch == c.Token && m.Group == c.Group && m.State == cloudprovider.Running && v.Hosts[m.ProviderID] == "" && c.Lags(m)
	})
}

// progress of a call: machines by how far they have come.
type progress struct {
	made, lost, registered, joined int
	// waitsFor is what the first node that has not joined waits for, until again.
	waitsFor string
	again    time.Time
	// unplaced: what the nodes that have not joined wait for is the label of their domain.
	unplaced bool
	// blocked is what keeps a node from being used that has been Ready for a while.
	blocked string
	// undeclared names the node that keeps taints which its NodeGroup does not declare and the gang does not tolerate; empty for none.
	// taints are the taints of that node.
	undeclared string
	taints     []corev1.Taint
	// queued: machines are still to come from a reservation, or from the cloud's own queue.
	queued bool
	// started is when the last of the machines was started, if it is known.
	started time.Time
}

// nothingMade reports whether the call has neither a machine nor a place in a queue of the cloud.
func (p *progress) nothingMade(g *planner.Group) bool {
	return p.made == p.lost && p.registered == 0 && (!p.queued || g.QueueTimeout == 0)
}

// timeout returns how long to wait for the machines of the call, and since when. The time to join starts when all machines of the call
// were started: the cloud may have accepted the call late, or kept it in its queue.
func (p *progress) timeout(c Call, g *planner.Group) (since time.Time, timeout time.Duration, field string) {
	switch {
	case p.made >= c.Count && p.started.After(c.Began):
		return p.started, g.JoinTimeout, "spec.joinTimeout"
	case g.QueueTimeout == 0:
		return c.Began, g.JoinTimeout, "spec.joinTimeout"
	default:
		return c.Began, g.QueueTimeout, "spec.queueTimeout"
	}
}

func progressOf(r *Request, v View) map[CallKey]*progress {
	out := map[CallKey]*progress{}
	for _, c := range r.Attempt.Calls(r.UID) {
		out[c.Key()] = &progress{}
	}
	at := func(token, group string) *progress {
		if p := out[CallKey{token, group}]; p != nil {
			return p
		}
		return &progress{} // of a group that the call is not about: the record was edited
	}
	levels := map[string][]string{}
	ended := map[string]bool{}
	for _, m := range v.Machines {
		if r.Attempt.lost(m) {
			ended[m.ProviderID] = true
			continue
		}
		p := at(m.Launch, m.Group)
		if m.Hold {
			p.queued = true
			continue
		}
		p.made++
		if m.Started.After(p.started) {
			p.started = m.Started
		}
	}
	for _, l := range r.Attempt.losses() {
		p := at(l.Launch, l.Group)
		p.made++
		p.lost++
	}
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if ended[n.ProviderID] {
			continue
		}
		p := at(n.Launch, n.Group)
		p.registered++
		why, again := unready(n, v.Snapshot)
		if _, known := levels[n.Group]; !known {
			levels[n.Group] = levelsIn(r, v, n.Group)
		}
		for _, level := range levels[n.Group] {
			if why == "" && n.Labels[level] == "" {
				why = fmt.Sprintf("has no label %s, which spec.topology of its NodeGroup promises", level)
				p.unplaced = p.unplaced || p.waitsFor == ""
			}
		}
		taints := undeclared(n, v.Snapshot)
		waits := len(taints) > 0 && v.Now.Before(n.ReadySince.Add(taintBound))
		if len(taints) > 0 && !waits && r.tolerates(taints) {
			why = "" // nothing removes them, and the gang can run there
		}
		if why == "" {
			p.joined++
			continue
		}
		if p.waitsFor == "" {
			p.waitsFor = fmt.Sprintf("node %s %s", n.Name, why)
		}
		if at := n.ReadySince.Add(readyGrace); n.Ready && v.Now.Before(at) {
			again = when.Earliest(again, at)
		} else if n.Ready && !n.ReadySince.IsZero() && p.blocked == "" {
			p.blocked = sayBlocked(n, why, taints, r)
		}
		switch {
		case waits:
			again = when.Earliest(again, n.ReadySince.Add(taintBound))
		case len(taints) > 0 && p.undeclared == "":
			p.taints = taints
			p.undeclared = fmt.Sprintf("node %s has been Ready with all devices for %s and still has the taint %s, which its NodeGroup does "+
				"not declare and the gang does not tolerate: let the pods tolerate it; and add it to spec.template.taints, or to "+
				"spec.template.startupTaints if something removes it", n.Name, taintBound, taints[0].ToString())
		}
		p.again = when.Earliest(p.again, again)
	}
	return out
}

// newlyLost returns the attempt's machines that have ended and are not recorded as lost.
func newlyLost(r *Request, v View) (out []cloudprovider.Machine) {
	for _, m := range v.Machines {
		if m.State == cloudprovider.Terminated && !m.Hold && !r.Attempt.lost(m) {
			out = append(out, m)
		}
	}
	return out
}

// replace launches lost machines again, so that the others are not wasted. It gives the attempt up if too many are lost, if the group's
// time is over, or if new machines would end the same way.
func replace(r *Request, v View, lost []cloudprovider.Machine) Step {
	m := lost[0]
	if i := slices.IndexFunc(lost, func(m cloudprovider.Machine) bool { return m.Class != "" }); i >= 0 {
		m = lost[i]
	}
	why := fmt.Sprintf("machine %s ended while starting: %s", m.Name, m.Reason)
	total := len(lost) + len(r.Attempt.losses())
	_, may := r.mayBuy(v, r.Attempt, len(lost))
	if total > min(r.Attempt.machines(), mostLost) || !inTime(r, v, lost) || m.Class != "" || !may {
		if total > len(lost) {
			why += fmt.Sprintf(", as %s did before", text.Machines(total-len(lost)))
		}
		return rollBack(r, v, failure(v, r.callOf(m.Launch, m.Group), cmp.Or(m.Class, v1alpha1.Lost), "%s", why))
	}
	a := r.Attempt
	a.Replacements = append(slices.Clip(a.Replacements), Replacement{Started: v.Now})
	record := &a.Replacements[len(a.Replacements)-1]
	s := Step{Do: Replace, Condition: r.attempting(a, "launches %s again: %s", text.Machines(len(lost)), why)}
	for _, m := range lost {
		record.Lost = append(record.Lost, LostMachine{Group: m.Group, Name: m.Name, Launch: m.Launch})
		f := failure(v, r.callOf(m.Launch, m.Group), v1alpha1.Lost, "machine %s ended while starting: %s", m.Name, m.Reason)
		f.Time = v.Now
		s.Outcomes = append(s.Outcomes, f.Outcome(r.String()))
	}
	s.Attempt = a
	return s
}

// callOf returns the call of the attempt that made the machine.
func (r *Request) callOf(token, group string) Call {
	for _, c := range r.Attempt.Calls(r.UID) {
		if c.Token == token && c.Group == group {
			return c
		}
	}
	return Call{Token: token, GroupCount: planner.GroupCount{Group: group}} // of a record that was edited
}

// blame says why machines that have all joined have no room for the gang: a template that promised more than its nodes offer, or pods that
// arrived first.
func blame(r *Request, v View) AttemptFailure {
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if slices.ContainsFunc(n.Bookings, func(b state.Booking) bool { return b.UID != r.UID }) {
			return AttemptFailure{Taken: true, Message: fmt.Sprintf("another request has booked node %s of the attempt", n.Name)}
		}
	}
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if g := v.FindGroup(n.Group); g != nil {
			if name, by, short := n.Allocatable.Short(g.Promised); short {
				return failure(v, r.callOf(n.Launch, n.Group), v1alpha1.Config,
					"node %s has %s %s less than spec.template of its NodeGroup", n.Name, nodegroups.Quantity(name, by), name)
			}
		}
	}
	if len(r.Attempt.Shares) > 0 {
		return AttemptFailure{Message: "machines launched for other gangs do not leave the capacity that was planned for this one"}
	}
	if s := unbookedPod(v.Nodes.LaunchedBy(r.Gang.Launch)); s != "" {
		// The offering is not to blame.
		return AttemptFailure{Taken: true, Message: s}
	}
	if hasUsable(v.Nodes.LaunchedBy(r.Gang.Launch), v) {
		return AttemptFailure{Taken: true, Message: "DaemonSets take capacity of its machines that was free when they were planned"}
	}
	return failure(v, r.Attempt.Calls(r.UID)[0], v1alpha1.Lost,
		"the machines joined, but other pods use capacity that was planned for the gang")
}

// hasUsable reports whether nodes have all that pods can use of a machine of their groups beside DaemonSets as they are now. If a gang
// does not fit all the same, they were others when it was planned.
func hasUsable(nodes iter.Seq[*state.Node], v View) bool {
	for n := range nodes {
		g := v.FindGroup(n.Group)
		if g == nil {
			return false
		}
		if _, _, short := n.Free.Short(g.Usable); short {
			return false
		}
	}
	return true
}

// taintBound is how long a node that is Ready with its devices may keep a taint that its NodeGroup does not declare. No pod of the gang
// tolerates it, and the machines cost money. Kubernetes' own taints describe the state of a node and do not count.
const taintBound = 2 * time.Minute

// readyGrace is how long a node may be Ready before the status reports what else it waits for: most nodes have it by then.
const readyGrace = 5 * time.Second

// sayBlocked says what keeps a Ready node from being used, and what happens next.
func sayBlocked(n *state.Node, why string, taints []corev1.Taint, r *Request) string {
	out := fmt.Sprintf("node %s is Ready and %s", n.Name, why)
	if len(taints) == 0 {
		return out
	}
	out += ", which its NodeGroup does not declare; unless it is removed by " + n.ReadySince.Add(taintBound).UTC().Format(time.RFC3339)
	if r.tolerates(taints) {
		return out + " the node is used with it"
	}
	return out + " the launch is rolled back, since the gang does not tolerate it"
}

// tolerates reports whether all pods of the gang do.
func (r *Request) tolerates(taints []corev1.Taint) bool {
	return !slices.ContainsFunc(r.Gang.PodSets, func(ps state.PodSet) bool {
		return fit.Untolerated(taints, ps.Template.Spec.Tolerations) != nil
	})
}

// undeclared returns the taints that alone keep a node from being ready for pods; nil for none.
func undeclared(n *state.Node, s *planner.Snapshot) []corev1.Taint {
	g := s.FindGroup(n.Group)
	if g == nil || !n.Ready || n.ReadySince.IsZero() {
		return nil
	}
	taints := slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool {
		own := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
		return own || !keepsOff(&t) || slices.ContainsFunc(slices.Concat(g.Taints, g.StartupTaints), func(o corev1.Taint) bool {
			return o.Key == t.Key && o.Effect == t.Effect
		})
	})
	if len(taints) == 0 {
		return nil
	}
	bare := *n
	bare.Taints = nil
	if why, _ := unready(&bare, s); why != "" {
		return nil
	}
	return taints
}

// unready returns what a young node lacks to run the gang's pods; empty for nothing. again is when the wait for it ends.
func unready(n *state.Node, s *planner.Snapshot) (why string, again time.Time) {
	if !n.Ready {
		return "is not Ready", again
	}
	g := s.FindGroup(n.Group)
	if g == nil {
		return "belongs to no NodeGroup", again
	}
	for i := range n.Taints {
		if t := &n.Taints[i]; keepsOff(t) && !slices.ContainsFunc(g.Taints, func(o corev1.Taint) bool {
			return o.Key == t.Key && o.Value == t.Value && o.Effect == t.Effect
		}) {
			return "still has the taint " + t.ToString(), again
		}
	}
	for _, name := range g.Allocatable.Names() {
		if nodegroups.Extended(name) && n.Allocatable[name] < g.Allocatable[name] {
			return fmt.Sprintf("offers %d of %d %s%s", n.Allocatable[name], g.Allocatable[name], name, unpublished(n)), again
		}
	}
	if until := n.Created.Add(daemonWait); s.Now.Before(until) {
		for i := range s.DaemonSets {
			d := &s.DaemonSets[i]
			if !n.Daemons[d.UID] && d.RunsOn(n.Name, n.Labels, n.Taints) {
				return "waits for a pod of DaemonSet " + d.Name, until
			}
		}
	}
	return "", again
}

// unpublished lists the drivers that have not published all devices of the node; empty for none.
func unpublished(n *state.Node) string {
	if n.Published == nil || n.Published.Unpublished() == "" {
		return ""
	}
	return " (" + n.Published.Unpublished() + ")"
}

// keepsOff reports whether the taint keeps pods off, other than by a cordon or by what stands in for it.
func keepsOff(t *corev1.Taint) bool {
	return t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable && t.Key != v1alpha1.BookedTaint
}

// rollBack gives the attempt up.
func rollBack(r *Request, v View, f AttemptFailure) Step {
	f.Time = v.Now
	a := r.Attempt
	a.Phase, a.Failure = RollingBack, &f
	s := Step{Do: RollBack, Attempt: a, Condition: r.underway("Attempt %d is rolled back: %s", a.Number, &f)}
	if f.Class != "" {
		s.Outcomes = []Outcome{f.Outcome(r.String())}
	}
	return s
}

// failure of a call of the attempt, with the machines of it that are there.
func failure(v View, c Call, class v1alpha1.ErrorClass, format string, args ...any) AttemptFailure {
	f := AttemptFailure{Group: c.Group, Class: class, Message: fmt.Sprintf(format, args...), Launch: c.Token, Requested: c.Count}
	for _, m := range v.Machines {
		if m.Group == c.Group && m.Launch == c.Token && !m.Hold && m.State < cloudprovider.Terminated {
			f.Got++
		}
	}
	return f
}

// Refused returns the step after the cloud has refused a call of the attempt. The view has the machines that exist.
func Refused(r *Request, v View, c Call, refusal *cloudprovider.Error) Step {
	f := failure(v, c, refusal.Class, "")
	f.Message = fmt.Sprintf("%d of %s were made: %s", f.Got, text.Machines(c.Count), refusal)
	if refusal.Class == v1alpha1.Stockout || refusal.Class == v1alpha1.Scattered {
		f.Level = c.Together.Level // machines that need not be together may be had
	}
	return rollBack(r, v, f).tallied(r, v)
}

// undoneWithin is how long a rollback waits for its cloud to accept the terminations. After that, the next offering is tried, and
// scale-down terminates the rest, which has the token of a former attempt.
const undoneWithin = 2 * time.Minute

// undo terminates by name what is left of an attempt that is rolled back. Machines that run pods are left to scale-down, which terminates
// them when they are idle.
func undo(r *Request, v View) (s Step, undone bool) {
	var left []cloudprovider.Machine
	for _, m := range v.Machines {
		if m.State < cloudprovider.Terminated {
			left = append(left, m)
		}
	}
	vacant, kept := parted(v, left)
	if f := r.Attempt.Failure; len(vacant) > 0 {
		if f == nil || v.Now.Before(f.Time.Add(undoneWithin)) {
			return Step{Do: Terminate, Attempt: r.Attempt, Terminate: vacant}, false
		}
		return Step{}, true
	}
	for n := range v.Nodes.LaunchedBy(r.Gang.Launch) {
		if !n.Ended && !n.Lost(v.Now) && !slices.Contains(kept, n) {
			return Step{Do: Rest, Attempt: r.Attempt, At: n.LostAt()}, false // its deletion, or its machine's end, will be seen
		}
	}
	if f := r.Attempt.Failure; f != nil && f.Kept < len(kept) {
		return handOver(r, kept), false
	}
	return Step{}, true
}

// handOver puts on record that machines of an attempt that is rolled back stay.
func handOver(r *Request, kept []*state.Node) Step {
	a, f := r.Attempt, *r.Attempt.Failure
	f.Kept = len(kept)
	a.Failure = &f
	return Step{Do: RollBack, Attempt: a, Condition: r.underway("Attempt %d was rolled back: %s; %s", a.Number, &f, sayKept(kept))}
}

// occupied returns the node of an attempt's machine if it runs pods of the gang or of others, so that the machine is not terminated. It is
// nil if there are only pods of DaemonSets, static pods, and pods that wait in vain for a lost kubelet.
func occupied(v View, m cloudprovider.Machine) *state.Node {
	n := v.Nodes.Find(v.Hosts[m.ProviderID])
	if n == nil || n.Pods == 0 || n.Lost(v.Now) && n.Pods == n.Terminating {
		return nil
	}
	return n
}

// sayKept says that the machines of these nodes stay, and why.
func sayKept(nodes []*state.Node) string {
	why := unbookedPod(slices.Values(nodes))
	if why == "" {
		why = fmt.Sprintf("%s run on node %s", text.Pods(nodes[0].Pods), nodes[0].Name)
	}
	return fmt.Sprintf("%s of it will be terminated once idle: %s", text.Machines(len(nodes)), why)
}

// parted returns the machines that may be terminated, and the nodes of those that run pods.
func parted(v View, machines []cloudprovider.Machine) (vacant []cloudprovider.Machine, kept []*state.Node) {
	for _, m := range machines {
		if n := occupied(v, m); n != nil {
			kept = append(kept, n)
		} else {
			vacant = append(vacant, m)
		}
	}
	return vacant, kept
}

// joined returns the request after the machines of its attempt have become its own.
func (r *Request) joined() *Request {
	out := *r
	out.Attempt.Phase = Done
	return &out
}

// closed returns the request after its attempt is undone.
func closed(r *Request) *Request {
	out := *r
	out.Attempt.Phase = Done
	out.Gang.Launch = ""
	return &out
}

// shareAgain is the minimum interval between an attempt that launches nothing and the next one. The room on machines of others may change
// with each of their steps, and each attempt is a write.
const shareAgain = time.Second

// nextShared returns the next step of an attempt whose own machines, if any, have joined, and which lacks the room on machines of others.
// ok is false if it has to be given up.
func nextShared(r *Request, v View, rest Step) (s Step, ok bool) {
	if in := v.Upcoming.Of(r.UID); in != nil && in.Forecast(v.Memo).Fits {
		rest.At = when.Earliest(rest.At, in.Until())
		return claimIdle(r, v, rest), true
	}
	if len(r.Attempt.Launches) > 0 {
		return s, false
	}
	s = nextPending(closed(r), v.counting(v.Upcoming.Without(r.UID)))
	if at := r.Attempt.Started.Add(shareAgain); s.Do == Begin && len(s.Attempt.Launches) == 0 && v.Now.Before(at) {
		rest.At = when.Earliest(rest.At, at)
		return rest, true
	}
	return s, true
}

// claimIdle books, instead of a rest, the idle nodes that the gang counts on and that would be terminated otherwise.
func claimIdle(r *Request, v View, rest Step) Step {
	if in := v.Upcoming.Of(r.UID); in != nil && rest.Do == Rest && len(r.Attempt.Shares) > 0 {
		if idle := in.Idle(v.Memo); len(idle) > 0 {
			return Step{Do: Book, Attempt: r.Attempt, Book: idle, Open: r.opens()}
		}
	}
	return rest
}

// alone returns the view of a gang that has shared machines in vain.
func (v View) alone() View {
	s := *v.Snapshot
	s.Alone = true
	v.Snapshot = &s
	return v
}

// counting returns the view in which the gang counts on that room; nil is none.
func (v View) counting(on *planner.Upcoming) View {
	s := *v.Snapshot
	s.Upcoming = on
	v.Snapshot = &s
	return v
}

package dispatch

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func cluster(name string, copies ...Copy) Cluster {
	c := Cluster{Name: name, Connected: true}
	for i := range copies {
		c.Copy = &copies[i]
	}
	return c
}

func cut(c Cluster) Cluster {
	c.Connected, c.Copy = false, nil
	return c
}

// idle returns the cluster with nothing that queues in it.
func idle(c Cluster) Cluster {
	c.Idle = "its Lease is not renewed"
	return c
}

func lacks(c Cluster, what string) Cluster {
	c.Lacks = what
	return c
}

// nominatedInA returns a job for which cluster a was nominated so long ago.
func nominatedInA(ago time.Duration, refusals ...Refusal) *Job {
	return &Job{Open: true, Nominated: []string{"a"}, Record: Record{In: []string{"a"}, At: noon.Add(-ago), Refusals: refusals}}
}

// leftFrom returns a job whose nominations were withdrawn so long ago.
func leftFrom(ago time.Duration, names []string, refusals ...Refusal) *Job {
	return &Job{Open: true, Record: Record{In: names, At: noon.Add(-ago), Refusals: refusals}}
}

// foreseen returns the cluster with a prospect.
func foreseen(c Cluster, o Outlook, more ...func(*Prospect)) Cluster {
	c.Prospect = &Prospect{Outlook: o, Chance: 1000}
	for _, set := range more {
		set(c.Prospect)
	}
	return c
}

func priced(usd int64, chance int) func(*Prospect) {
	return func(p *Prospect) { p.MicroUSDPerHour, p.Chance = usd*1e6, chance }
}

func unpriced(p *Prospect) { p.Unpriced = true }

func startingIn(d time.Duration) func(*Prospect) {
	return func(p *Prospect) { p.Start, p.Message = noon.Add(d), "4 more needed" }
}

func no(name string, reason Reason, ago time.Duration, times int) Refusal {
	return Refusal{Cluster: name, Reason: reason, At: noon.Add(-ago), Times: times}
}

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name     string
		job      *Job
		clusters []Cluster
		want     Action
		cluster  string
		gone     string
		at       time.Duration
		message  string
		in       string
		// weigh: the step compares prospects. They are computed only then.
		weigh bool
	}{
		{name: "a job that is not open is left alone", job: &Job{}, clusters: []Cluster{cluster("a")}},
		{name: "the first cluster is asked, and is on record before", job: &Job{Open: true}, clusters: []Cluster{cluster("a"), cluster("b")},
			want: Nominate, cluster: "a", gone: "a b", in: "a", message: "cluster a is asked"},
		{name: "one that cannot be reached is passed over", job: &Job{Open: true}, clusters: []Cluster{cut(cluster("a")), cluster("b")},
			want: Nominate, cluster: "b", gone: "b", in: "b"},
		{name: "and one that lacks the namespace", job: &Job{Open: true}, clusters: []Cluster{lacks(cluster("a"), "namespace team-a"), cluster("b")},
			want: Nominate, cluster: "b", gone: "a b", in: "b"},
		{name: "and one with a Workload of others of that name", job: &Job{Open: true}, clusters: []Cluster{cluster("a", Copy{Foreign: true}), cluster("b")},
			want: Nominate, cluster: "b", gone: "b", in: "b"},
		{name: "where all lack something that is said of each", job: &Job{Open: true},
			clusters: []Cluster{cut(cluster("a")), lacks(cluster("b"), "LocalQueue team-a/gpus"), cluster("c", Copy{Foreign: true})},
			message: "no cluster can run the job: a cannot be reached; b lacks LocalQueue team-a/gpus; c has a Workload of that name that is no " +
				"copy"},
		{name: "a copy of former times is waited for", job: &Job{Open: true}, clusters: []Cluster{cluster("a"), cluster("b", Copy{Leaving: true})},
			message: "cluster b still has a copy"},
		{name: "one that runs is named, so that the manager takes it back", job: leftFrom(time.Hour, []string{"b"}), clusters: []Cluster{cluster("a"), cluster("b", Copy{Admitted: true})},
			want: Nominate, cluster: "b", gone: "a", in: "b", message: "cluster b runs the job already"},

		{name: "the copy that is asked is waited for", job: nominatedInA(time.Minute), clusters: []Cluster{cluster("a", Copy{Reserved: true}), cluster("b")},
			at: startBound - time.Minute, in: "a"},
		{name: "one of which its worker says nothing waits for a minute", job: nominatedInA(0), clusters: []Cluster{cluster("a", Copy{Unjudged: true}), cluster("b")},
			at: judgedWithin, in: "a"},
		{name: "and then leaves", job: nominatedInA(judgedWithin), clusters: []Cluster{cluster("a", Copy{Unjudged: true}), cluster("b")}, want: Withdraw, in: "a",
			message: "Late: it has said nothing of the copy for 1m0s"},
		{name: "where another can be asked, and it is told", job: nominatedInA(judgedWithin), clusters: []Cluster{cluster("a", Copy{Unjudged: true})}, in: "a",
			message: "its Muster or Kueue may be down; no other cluster can be asked now"},
		{name: "one with quota leaves a cluster where nothing queues any more", job: nominatedInA(0),
			clusters: []Cluster{idle(cluster("a", Copy{Reserved: true})), cluster("b")}, want: Withdraw, in: "a",
			message: "cluster a does not run the job: Late: its Lease is not renewed"},
		{name: "so does one that is refused there", job: nominatedInA(0), clusters: []Cluster{idle(cluster("a", Copy{Refused: NoQuota})), cluster("b")},
			want: Withdraw, in: "a", message: "Late: its Lease is not renewed"},
		{name: "it stays where no other can be asked, and the reason is told", job: nominatedInA(0),
			clusters: []Cluster{idle(cluster("a", Copy{Reserved: true})), idle(cluster("b"))}, in: "a",
			message: "Late: its Lease is not renewed; no other cluster can be asked now"},
		{name: "one that is admitted there runs on", job: nominatedInA(0), clusters: []Cluster{idle(cluster("a", Copy{Admitted: true})), cluster("b")}, in: "a"},
		{name: "a cluster where nothing queues is not asked", job: &Job{Open: true}, clusters: []Cluster{idle(cluster("a")), cluster("b")},
			want: Nominate, cluster: "b", gone: "a b", in: "b"},
		{name: "though all are so", job: &Job{Open: true}, clusters: []Cluster{idle(cluster("a")), idle(cluster("b"))},
			message: "no cluster can run the job: a does not queue: its Lease is not renewed; b does not queue"},

		{name: "one that runs for ever", job: nominatedInA(2 * startBound), clusters: []Cluster{cluster("a", Copy{Admitted: true})}, in: "a"},
		{name: "one that waits for quota waits a moment", job: nominatedInA(0), clusters: []Cluster{cluster("a", Copy{Refused: NoQuota})}, at: quotaPatience, in: "a"},
		{name: "longer with each try", job: nominatedInA(0, no("a", NoQuota, time.Minute, 2)), clusters: []Cluster{cluster("a", Copy{Refused: NoQuota})},
			at: 4 * quotaPatience, in: "a"},
		{name: "and then leaves", job: nominatedInA(quotaPatience), clusters: []Cluster{cluster("a", Copy{Refused: NoQuota, Message: "1 more needed"}), cluster("b")},
			want: Withdraw, in: "a", message: "cluster a does not run the job: NoQuota: 1 more needed"},
		{name: "where another can be asked", job: nominatedInA(quotaPatience, no("b", NoCapacity, 0, 1)), clusters: []Cluster{cluster("a", Copy{Refused: NoQuota}), cluster("b")},
			in: "a", at: capacityPause, message: "no other cluster can be asked now"},
		{name: "one without machines leaves at once", job: nominatedInA(0), clusters: []Cluster{cluster("a", Copy{Reserved: true, Refused: NoCapacity}), cluster("b")},
			want: Withdraw, in: "a", message: "NoCapacity"},
		{name: "a copy that does not come is not waited for", job: nominatedInA(copyBound), clusters: []Cluster{cluster("a")}, want: Withdraw, in: "a", message: "NoCopy"},
		{name: "but for a while", job: nominatedInA(0), clusters: []Cluster{cluster("a")}, at: copyBound, in: "a"},
		{name: "a Workload of others is in its way", job: nominatedInA(0), clusters: []Cluster{cluster("a", Copy{Foreign: true})}, want: Withdraw, in: "a", message: "no copy"},
		{name: "the namespace has gone", job: nominatedInA(0), clusters: []Cluster{lacks(cluster("a"), "namespace team-a")}, want: Withdraw, in: "a",
			message: "Rejected: it lacks namespace team-a"},
		{name: "a cluster that was asked and cannot be reached may run the job", job: nominatedInA(24 * time.Hour), clusters: []Cluster{cut(cluster("a")), cluster("b")},
			in: "a", message: "cluster a cannot be reached, and may run the job"},
		{name: "one that was taken out runs nothing", job: nominatedInA(0), clusters: []Cluster{cluster("b")}, want: Withdraw, in: "a", message: "MultiKueueCluster"},
		{name: "a name that others have written comes on record", job: &Job{Open: true, Nominated: []string{"b"}, Record: Record{At: noon}},
			clusters: []Cluster{cluster("a"), cluster("b", Copy{Reserved: true})}, in: "b", at: startBound},
		{name: "several are another dispatcher's", job: &Job{Open: true, Nominated: []string{"a", "b"}}, clusters: []Cluster{cluster("a"), cluster("b")},
			in: "a b", message: "multiKueue.dispatcherName"},

		{name: "no other is asked while the copy is there", job: leftFrom(time.Hour, []string{"a"}), clusters: []Cluster{cluster("a", Copy{Leaving: true}), cluster("b")},
			message: "cluster a still has a copy", in: "a"},
		{name: "nor while that is not known", job: leftFrom(time.Hour, []string{"a"}), clusters: []Cluster{cut(cluster("a")), cluster("b")},
			message: "cluster a cannot be reached, and may still have a copy", in: "a"},
		{name: "nor while the manager may still make one", job: leftFrom(0, []string{"a"}), clusters: []Cluster{cluster("a"), cluster("b")}, at: settle, in: "a"},
		{name: "then the one that has refused less often is", job: leftFrom(time.Hour, []string{"a"}, no("a", NoQuota, time.Minute, 1)),
			clusters: []Cluster{cluster("a"), cluster("b")}, want: Nominate, cluster: "b", gone: "a b", in: "b"},
		{name: "the first again once all have", job: leftFrom(time.Hour, []string{"b"}, no("a", NoQuota, time.Minute, 1), no("b", NoQuota, time.Minute, 1)),
			clusters: []Cluster{cluster("a"), cluster("b")}, want: Nominate, cluster: "a", gone: "a b", in: "a"},
		{name: "one without machines is left alone for a while", job: leftFrom(time.Hour, []string{"a"}, no("a", NoCapacity, 0, 1), no("b", NoQuota, time.Minute, 3)),
			clusters: []Cluster{cluster("a"), cluster("b")}, want: Nominate, cluster: "b", gone: "a b", in: "b"},
		{name: "also where all are", job: leftFrom(time.Hour, []string{"a"}, no("a", NoCapacity, 0, 2), no("b", NoCapacity, 0, 1)),
			clusters: []Cluster{cluster("a"), cluster("b")}, at: capacityPause,
			message: "all clusters have refused the job; b is asked next", in: "a"},
		{name: "machines that are there come first", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Launches, priced(1, 1000)), foreseen(cluster("b"), Fits)},
			want: Nominate, cluster: "b", gone: "a b", in: "b", message: "cluster b has machines for it, and is asked", weigh: true},
		{name: "then the lower price", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Launches, priced(9, 1000)), foreseen(cluster("b"), Launches, priced(8, 1000))},
			want: Nominate, cluster: "b", gone: "a b", in: "b",
			message: "cluster b would launch machines for it, at 8.00 USD per hour, with a chance of 100%, and is asked", weigh: true},
		{name: "with the chance counted in", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Launches, priced(9, 1000)), foreseen(cluster("b"), Launches, priced(8, 800))},
			want: Nominate, cluster: "a", gone: "a b", in: "a", weigh: true},
		{name: "one that is not known is dear", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Launches, unpriced), foreseen(cluster("b"), Launches, priced(90, 1000))},
			want: Nominate, cluster: "b", gone: "a b", in: "b", weigh: true},
		{name: "a launch rather than a preemption", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Preempts), foreseen(cluster("b"), Launches)},
			want: Nominate, cluster: "b", gone: "a b", in: "b", weigh: true},
		{name: "a cluster that cannot be seen rather than one to wait in", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Waits), cluster("b")},
			want: Nominate, cluster: "b", gone: "a b", in: "b", message: "cluster b is asked", weigh: true},
		{name: "the one to wait in for the shortest time", job: &Job{Open: true},
			clusters: []Cluster{foreseen(cluster("a"), Waits), foreseen(cluster("b"), Waits, startingIn(time.Hour)),
				foreseen(cluster("c"), Waits, startingIn(time.Minute))},
			want: Nominate, cluster: "c", gone: "a b c", in: "c", message: "would start it about 2026-01-01T12:01:00Z: 4 more needed, and is asked",
			weigh: true},
		{name: "equals by their order", job: &Job{Open: true}, clusters: []Cluster{foreseen(cluster("a"), Fits), foreseen(cluster("b"), Fits)},
			want: Nominate, cluster: "a", gone: "a b", in: "a", weigh: true},
		{name: "a refusal counts more than a prospect", job: leftFrom(time.Hour, []string{"a"}, no("a", NoCapacity, 0, 1)),
			clusters: []Cluster{foreseen(cluster("a"), Fits), foreseen(cluster("b"), Waits)}, want: Nominate, cluster: "b", gone: "a b", in: "b"},
		{name: "a job that waits for quota moves at once where it would start", job: nominatedInA(0),
			clusters: []Cluster{cluster("a", Copy{Refused: NoQuota}), foreseen(cluster("b"), Launches)}, want: Withdraw, in: "a",
			message: "NoQuota", weigh: true},
		{name: "unless its worker may not have judged it yet", job: nominatedInA(0),
			clusters: []Cluster{cluster("a", Copy{Refused: NoQuota, Unclear: true}), foreseen(cluster("b"), Launches)}, at: judgedBy, in: "a",
			weigh: true},
		{name: "then it leaves, too", job: nominatedInA(judgedBy),
			clusters: []Cluster{cluster("a", Copy{Refused: NoQuota, Unclear: true}), foreseen(cluster("b"), Launches)}, want: Withdraw, in: "a",
			message: "NoQuota", weigh: true},
		{name: "but not time and again", job: nominatedInA(0, no("b", NoQuota, time.Minute, 1)),
			clusters: []Cluster{cluster("a", Copy{Refused: NoQuota}), foreseen(cluster("b"), Launches)}, at: quotaPatience, in: "a", weigh: true},
		{name: "and keeps its place where it would wait longer elsewhere", job: nominatedInA(quotaPatience),
			clusters: []Cluster{foreseen(cluster("a", Copy{Refused: NoQuota}), Waits, startingIn(time.Minute)),
				foreseen(cluster("b"), Waits, startingIn(time.Hour))},
			at: weighAgain, in: "a", message: "no other would start the job sooner", weigh: true},
		{name: "and leaves where it would wait less", job: nominatedInA(quotaPatience),
			clusters: []Cluster{foreseen(cluster("a", Copy{Refused: NoQuota}), Waits, startingIn(time.Hour)),
				foreseen(cluster("b"), Waits, startingIn(time.Minute))},
			want: Withdraw, in: "a", weigh: true},
		{name: "a cluster whose MultiKueueCluster is deleted is dead", job: leftFrom(time.Hour, []string{"a"}), clusters: []Cluster{cluster("b")},
			want: Nominate, cluster: "b", gone: "b", in: "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Next(c.job, c.clusters, noon)
			if s.Do != c.want || s.Cluster != c.cluster || strings.Join(s.Gone, " ") != c.gone || !strings.Contains(s.Message, c.message) {
				t.Errorf("%s %q, gone %q: %s", s.Do, s.Cluster, s.Gone, s.Message)
			}
			if c.weigh && !s.Weigh {
				t.Error("prospects are not asked for")
			}
			if want := c.at; want != 0 && !s.At.Equal(noon.Add(want)) || want == 0 && !s.At.IsZero() {
				t.Errorf("looks again at %s", s.At)
			}
			if got := strings.Join(s.Record.In, " "); got != c.in {
				t.Errorf("on record are %q", got)
			}
			read, err := DecodeRecord(s.Record.Encode())
			if err != nil || !reflect.DeepEqual(read, s.Record) {
				t.Errorf("the record is read as %+v, %v", read, err)
			}
		})
	}
}

// TestARefusalCountsOnce, even if its step is repeated after a crash.
func TestARefusalCountsOnce(t *testing.T) {
	clusters := []Cluster{cluster("a", Copy{UID: "1", Refused: NoCapacity}), cluster("b")}
	j := nominatedInA(0)
	for range 2 {
		j.Record = Next(j, clusters, noon).Record
	}
	if got := j.Record.refusal("a").Times; got != 1 {
		t.Errorf("the refusal of one copy counts %d times", got)
	}
	clusters[0].Copy.UID = "2"
	if got := Next(j, clusters, noon).Record; got.refusal("a").Times != 2 {
		t.Errorf("that of the next: %+v", got)
	}
}

func TestARecordThatCannotBeRead(t *testing.T) {
	if _, err := DecodeRecord("{"); err == nil || !strings.Contains(err.Error(), Annotation) {
		t.Errorf("error is %v", err)
	}
}

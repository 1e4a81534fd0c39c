package dispatch

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAJobIsRequeuedOnceItsClusterHasStoppedIt: no event reports that, since the cluster is cut off.
func TestAJobIsRequeuedOnceItsClusterHasStoppedIt(t *testing.T) {
	stops := noon.Add(5 * time.Minute)
	for name, change := range map[string]func(*Job){
		"it runs there":        func(j *Job) { j.Open, j.Nominated, j.Runs = false, nil, "a" },
		"it waits there":       func(*Job) {},
		"it was withdrawn":     func(j *Job) { j.Nominated = nil },
		"it may not run":       func(j *Job) { j.Open, j.Over, j.Nominated = false, true, nil },
		"it waits, for a name": func(j *Job) { j.Nominated, j.Record.In = nil, []string{"a"} },
	} {
		j := nominatedInA(time.Second)
		change(j)
		for _, at := range []time.Time{stops, {}} {
			if s := Manage(j, []Cluster{{Name: "a", StopsAt: at}, cluster("b")}, noon); s.Do != Rest || !s.At.Equal(at) || s.Record.Waits == "" {
				t.Errorf("%s: %s until %s, %q; want Rest until %s", name, s.Do, s.At, s.Record.Waits, at)
			}
		}
	}
}

func TestManage(t *testing.T) {
	asked := func(change ...func(*Job)) *Job {
		j := nominatedInA(time.Second)
		for _, c := range change {
			c(j)
		}
		return j
	}
	runs := func(j *Job) { j.Open, j.Nominated, j.Runs = false, nil, "a" }
	over := func(j *Job) { j.Open, j.Over, j.Nominated = false, true, nil }
	withdrawn := func(j *Job) { j.Nominated = nil }
	behind := func(j *Job) {
		j.Record.Fence = &Fence{Cluster: "a", After: metav1.Duration{Duration: 10 * time.Minute}}
	}
	fenced := func(c Cluster) Cluster { c.Fence = 10 * time.Minute; return c }
	ungranted := func(c Cluster) Cluster { c = cut(c); c.Ungranted = true; return c }
	deleted := func(c Cluster) Cluster { c.Deleted, c.Lacks = true, "its MultiKueueCluster"; return c }
	stopped := func(name string) Cluster { return Cluster{Name: name, Stopped: true} }
	for _, c := range []struct {
		name     string
		job      *Job
		clusters []Cluster
		want     Action
		cluster  string
		gone, in string
		message  string
		fence    string
	}{
		{name: "the first cluster is named as ever", job: &Job{Open: true}, clusters: []Cluster{cluster("a"), cluster("b")}, want: Nominate,
			cluster: "a", in: "a"},
		{name: "it gets a copy, unless it has one", job: asked(), clusters: []Cluster{cluster("a"), cluster("b")}, want: Offer, cluster: "a", in: "a"},
		{name: "not while it cannot be reached", job: asked(), clusters: []Cluster{cut(cluster("a")), cluster("b")}, want: Rest, in: "a",
			message: "cluster a cannot be reached"},
		{name: "unless nothing was granted there: it leaves at once", job: asked(), clusters: []Cluster{ungranted(cluster("a")), cluster("b")},
			want: Withdraw, message: "cluster a cannot be reached, and was not granted the job"},
		{name: "then the next is named", job: asked(withdrawn, func(j *Job) { j.Record.In = nil }),
			clusters: []Cluster{ungranted(cluster("a")), cluster("b")}, want: Nominate, cluster: "b", in: "b"},
		{name: "and a copy that came there after all is deleted", job: asked(func(j *Job) { j.Nominated, j.Record.In = []string{"b"}, []string{"b"} }),
			clusters: []Cluster{cluster("a", Copy{Gated: true}), cluster("b", Copy{Reserved: true})}, want: Clear, gone: "a", in: "b"},
		{name: "a job that asks for several leaves that one alone", job: asked(func(j *Job) {
			j.Hedge, j.Nominated, j.Record.In = 2, []string{"a", "b"}, []string{"a", "b"}
		}), clusters: []Cluster{ungranted(cluster("a")), cluster("b", Copy{Reserved: true})}, want: Withdraw, in: "b"},
		{name: "nor if it lacks the queue", job: asked(), clusters: []Cluster{lacks(cluster("a"), "the queue"), cluster("b")}, want: Withdraw, in: "a",
			message: "it lacks the queue"},
		{name: "a copy with a gate is granted", job: asked(), clusters: []Cluster{cluster("a", Copy{UID: "1", Gated: true})}, want: Grant, cluster: "a", in: "a"},
		{name: "not one that was edited", job: asked(), clusters: []Cluster{cluster("a", Copy{UID: "1", Gated: true, Changed: "its count"}), cluster("b")},
			want: Withdraw, in: "a", message: "its count"},
		{name: "though no other cluster can be asked", job: asked(), clusters: []Cluster{cluster("a", Copy{UID: "1", Gated: true, Changed: "its count"})},
			want: Withdraw, in: "a", message: "its count"},
		{name: "nor once it is admitted", job: asked(), clusters: []Cluster{cluster("a", Copy{Admitted: true, Changed: "its count"})}, want: Withdraw, in: "a",
			message: "its count"},
		{name: "one that waits for machines is waited for", job: asked(), clusters: []Cluster{cluster("a", Copy{Reserved: true})}, want: Rest, in: "a"},
		{name: "one of an earlier Workload is deleted", job: asked(), clusters: []Cluster{cluster("a", Copy{Stale: true, Admitted: true})}, want: Clear,
			gone: "a", in: "a"},
		{name: "one of others is left alone", job: asked(), clusters: []Cluster{cluster("a", Copy{Foreign: true, Admitted: true}), cluster("b")},
			want: Withdraw, in: "a", message: "that is no copy"},
		{name: "one that is admitted is it", job: asked(), clusters: []Cluster{cluster("a", Copy{Admitted: true})}, want: Commit, cluster: "a", in: "a",
			message: `The workload was admitted on "a"`},
		{name: "another one goes first", job: asked(), clusters: []Cluster{cluster("a", Copy{Admitted: true}), cluster("b", Copy{Reserved: true})},
			want: Clear, gone: "b", in: "a"},
		{name: "a cluster that was withdrawn is cleared", job: asked(withdrawn), clusters: []Cluster{cluster("a", Copy{}), cluster("b")}, want: Clear, gone: "a"},
		{name: "also if no copy is seen there", job: asked(withdrawn), clusters: []Cluster{cluster("a"), cluster("b")}, want: Clear, gone: "a"},
		{name: "not while it cannot be reached, and no other is asked", job: asked(withdrawn), clusters: []Cluster{cut(cluster("a")), cluster("b")}, want: Rest,
			in: "a", message: "cluster a cannot be reached"},
		{name: "unless it is declared gone", job: asked(withdrawn), clusters: []Cluster{cluster("b")}, want: Clear},

		{name: "a job that runs is followed", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Admitted: true})}, want: Follow, cluster: "a", in: "a"},
		{name: "it runs on where it cannot be reached", job: asked(runs), clusters: []Cluster{cut(cluster("a")), cluster("b")}, want: Rest, cluster: "a", in: "a",
			message: "cluster a cannot be reached, and runs the job"},
		{name: "it has ended", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Admitted: true, Finished: true})}, want: Finish, cluster: "a", in: "a"},
		{name: "its worker says that it is for other pods", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Finished: true, Changed: "out of sync"})},
			want: Retry, cluster: "a", in: "a", message: "out of sync"},
		{name: "it was evicted", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Refused: Evicted})}, want: Retry, cluster: "a", in: "a",
			message: `Workload evicted on worker cluster: "a"`},
		{name: "it is not started where nothing queues any more", job: asked(runs),
			clusters: []Cluster{idle(cluster("a", Copy{Admitted: true, Held: true})), cluster("b")}, want: Retry, cluster: "a", in: "a",
			message: "cluster a does not start the job: its Lease is not renewed"},
		{name: "unless no other can be asked", job: asked(runs), clusters: []Cluster{idle(cluster("a", Copy{Admitted: true, Held: true}))}, want: Rest,
			cluster: "a", in: "a", message: "its Lease is not renewed; no other cluster can be asked now"},
		{name: "one that has started runs on", job: asked(runs), clusters: []Cluster{idle(cluster("a", Copy{Admitted: true})), cluster("b")}, want: Follow,
			cluster: "a", in: "a"},
		{name: "one that is only held is waited for", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Admitted: true, Held: true}), cluster("b")},
			want: Follow, cluster: "a", in: "a"},
		{name: "a copy that is not granted yet is not where nothing queues", job: asked(),
			clusters: []Cluster{idle(cluster("a", Copy{Gated: true})), cluster("b")}, want: Withdraw, in: "a", message: "its Lease is not renewed"},
		{name: "its copy is being deleted", job: asked(runs), clusters: []Cluster{cluster("a", Copy{Admitted: true, Leaving: true})}, want: Retry, cluster: "a", in: "a"},
		{name: "its copy is gone, by a live read", job: asked(runs), clusters: []Cluster{cluster("a")}, want: Retry, cluster: "a", gone: "a", in: "a",
			message: "Admitting remote no longer exists"},
		{name: "its cluster is declared gone", job: asked(runs), clusters: []Cluster{cluster("b")}, want: Retry, cluster: "a", gone: "a", in: "a"},

		{name: "a copy gets the fence of its cluster", job: asked(withdrawn, func(j *Job) { j.Record.In = nil }), clusters: []Cluster{fenced(cluster("a"))},
			want: Nominate, cluster: "a", in: "a", fence: "a 10m0s"},
		{name: "one with it is granted", job: asked(behind), clusters: []Cluster{fenced(cluster("a", Copy{Gated: true, Fence: 10 * time.Minute}))},
			want: Grant, cluster: "a", in: "a", fence: "a 10m0s"},
		{name: "one without is not", job: asked(behind), clusters: []Cluster{fenced(cluster("a", Copy{Gated: true}))}, want: Clear, gone: "a", in: "a",
			fence: "a 10m0s"},
		{name: "nor one with another", job: asked(behind), clusters: []Cluster{fenced(cluster("a", Copy{Gated: true, Fence: time.Hour}))}, want: Clear, gone: "a",
			in: "a", fence: "a 10m0s"},
		{name: "nor one that has one where none is on record", job: asked(), clusters: []Cluster{cluster("a", Copy{Gated: true, Fence: time.Hour})},
			want: Clear, gone: "a", in: "a"},
		{name: "one that runs already keeps its own", job: asked(withdrawn, func(j *Job) { j.Record.In = nil }),
			clusters: []Cluster{fenced(cluster("a", Copy{Admitted: true, Foreign: true})), fenced(cluster("b"))}, want: Nominate,
			cluster: "b", in: "b", fence: "b 10m0s"},
		{name: "a job that waits in a cluster that its fence has stopped is withdrawn", job: asked(behind), clusters: []Cluster{stopped("a"), cluster("b")},
			want: Withdraw, in: "a", message: "by its fence has stopped what it had of the job", fence: "a 10m0s"},
		{name: "one that ran there is tried again", job: asked(behind, runs), clusters: []Cluster{stopped("a"), cluster("b")}, want: Retry, in: "a",
			message: "by its fence has stopped what it had of the job", fence: "a 10m0s"},
		{name: "and the cluster is off the record", job: asked(behind, over), clusters: []Cluster{stopped("a"), cluster("b")}, want: Clear, fence: "a 10m0s"},
		{name: "also of one that was withdrawn", job: asked(behind, withdrawn), clusters: []Cluster{stopped("a"), cluster("b")}, want: Clear, fence: "a 10m0s"},
		{name: "then the next is named", job: asked(behind, withdrawn, func(j *Job) { j.Record.In = nil }), clusters: []Cluster{stopped("a"), cluster("b")},
			want: Nominate, cluster: "b", in: "b"},
		{name: "what is left there is deleted when it is back", job: asked(func(j *Job) { j.Nominated, j.Record.In = []string{"b"}, []string{"b"} }),
			clusters: []Cluster{cluster("a", Copy{Fence: 10 * time.Minute, Refused: Rejected}), cluster("b", Copy{Reserved: true})},
			want:     Clear, gone: "a", in: "b"},

		{name: "a cluster whose MultiKueueCluster is deleted is cleared", job: asked(runs), clusters: []Cluster{deleted(cluster("a", Copy{Admitted: true})), cluster("b")},
			want: Clear, gone: "a"},
		{name: "then the job is tried again", job: asked(runs, func(j *Job) { j.Record.In = nil }), clusters: []Cluster{deleted(cluster("a")), cluster("b")},
			want: Retry, cluster: "a", gone: "a", message: "no longer exists"},
		{name: "one that was asked there, too", job: asked(), clusters: []Cluster{deleted(cluster("a", Copy{Reserved: true})), cluster("b")}, want: Clear, gone: "a"},
		{name: "and is withdrawn", job: asked(func(j *Job) { j.Record.In = nil }), clusters: []Cluster{deleted(cluster("a")), cluster("b")}, want: Withdraw, in: "a",
			message: "it lacks its MultiKueueCluster"},

		{name: "a job that may not run is cleared everywhere", job: asked(over), clusters: []Cluster{cluster("a", Copy{Admitted: true}), cluster("b", Copy{})},
			want: Clear, gone: "a b"},
		{name: "of those that can be reached", job: asked(over, func(j *Job) { j.Record = j.Record.with("b") }),
			clusters: []Cluster{cut(cluster("a")), cluster("b")}, want: Clear, gone: "b", in: "a"},
		{name: "and the others are on record", job: asked(over), clusters: []Cluster{cut(cluster("a")), cluster("b")}, want: Rest, in: "a",
			message: "cluster a cannot be reached, and may still have a copy"},
		{name: "then nothing is left to do", job: &Job{Over: true}, clusters: []Cluster{cluster("a"), cut(cluster("b"))}, want: Rest},
		{name: "copies of others are left alone", job: &Job{Over: true}, clusters: []Cluster{cluster("a", Copy{Foreign: true})}, want: Rest},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Manage(c.job, c.clusters, noon)
			fence := ""
			if f := s.Record.Fence; f != nil {
				fence = f.Cluster + " " + f.After.Duration.String()
			}
			if fence != c.fence {
				t.Errorf("the fence on record is %q, want %q", fence, c.fence)
			}
			if s.Do != c.want || s.Cluster != c.cluster && c.cluster != "" || strings.Join(s.Gone, " ") != c.gone ||
				!slices.Equal(s.Record.In, strings.Fields(c.in)) && len(s.Record.In)+len(c.in) > 0 || !strings.Contains(s.Message, c.message) {
				t.Errorf("%s %q, gone %q, on record %q: %s; want %s %q, gone %q, on record %q: %s",
					s.Do, s.Cluster, s.Gone, s.Record.In, s.Message, c.want, c.cluster, c.gone, c.in, c.message)
			}
		})
	}
}

// TestARunningJobNoLongerWaits: what the record of a job says that it waits for goes in a step of its own, after which it is followed.
func TestARunningJobNoLongerWaits(t *testing.T) {
	j := nominatedInA(time.Second)
	j.Open, j.Nominated, j.Runs = false, nil, "a"
	s := Manage(j, []Cluster{cut(cluster("a", Copy{Admitted: true}))}, noon)
	if s.Do != Rest || s.Record.Waits == "" {
		t.Fatalf("while the cluster is cut off: %s, it waits for %q", s.Do, s.Record.Waits)
	}
	j.Record = s.Record
	back := []Cluster{cluster("a", Copy{Admitted: true})}
	if s = Manage(j, back, noon); s.Do != Rest || s.Record.Waits != "" {
		t.Errorf("once it is back: %s, it waits for %q", s.Do, s.Record.Waits)
	}
	j.Record = s.Record
	if s = Manage(j, back, noon); s.Do != Follow {
		t.Errorf("then: %s, want Follow", s.Do)
	}
}

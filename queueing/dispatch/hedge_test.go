package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestParseHedge(t *testing.T) {
	for text, want := range map[string]int{"": 1, "1": 1, "2": 2, "5": 5, "0": 0, "6": 0, "-1": 0, "two": 0, "2.5": 0} {
		got, err := ParseHedge(text)
		if err == nil != (want > 0) || got != max(1, want) {
			t.Errorf("%q is %d: %v", text, got, err)
		}
	}
}

// TestSeveralClustersAreNominatedAtOnce if the job has a hedge. Each is nominated as soon as a live read has found no copy in it.
func TestSeveralClustersAreNominatedAtOnce(t *testing.T) {
	asked := func(names ...string) *Job {
		return &Job{Open: true, Hedge: 2, Nominated: names, Record: Record{In: names, Hedge: len(names), At: noon}}
	}
	reserved, refused, runs := Copy{Reserved: true}, Copy{Refused: NoCapacity}, Copy{Admitted: true}
	for _, c := range []struct {
		name      string
		job       *Job
		clusters  []Cluster
		want      Action
		nominated string
		message   string
	}{
		{"the first", &Job{Open: true, Hedge: 2}, []Cluster{cluster("a"), cluster("b"), cluster("c")}, Nominate, "a", "cluster a is asked"},
		{"the second at once", asked("a"), []Cluster{cluster("a", reserved), cluster("b"), cluster("c")}, Nominate, "a b",
			"cluster b is asked, as 2 of 2 at once, each of which may launch machines for the job (muster.dev/hedge)"},
		{"no third", asked("a", "b"), []Cluster{cluster("a", reserved), cluster("b", reserved), cluster("c")}, Rest, "", ""},
		{"one that cannot be reached holds up no other", asked("a"), []Cluster{cut(cluster("a")), cluster("b")}, Nominate, "a b", "b is asked"},
		{"one that has refused is left", asked("a", "b"), []Cluster{cluster("a", refused), cluster("b", reserved), cluster("c")}, Withdraw, "b", "NoCapacity"},
		{"and no other asked while its copy is there",
			&Job{Open: true, Hedge: 2, Nominated: []string{"b"}, Record: Record{In: []string{"a", "b"}, Hedge: 2, At: noon.Add(-time.Minute)}},
			[]Cluster{cluster("a", refused), cluster("b", reserved), cluster("c")}, Rest, "", ""},
		{"nor while it cannot be reached",
			&Job{Open: true, Hedge: 2, Nominated: []string{"b"}, Record: Record{In: []string{"a", "b"}, Hedge: 2, At: noon.Add(-time.Minute)}},
			[]Cluster{cut(cluster("a")), cluster("b", reserved), cluster("c")}, Rest, "", ""},
		{"those that were asked stay, once the job asks for one alone",
			&Job{Open: true, Hedge: 1, Nominated: []string{"a", "b"}, Record: Record{In: []string{"a", "b"}, Hedge: 2, At: noon}},
			[]Cluster{cluster("a", reserved), cluster("b", reserved), cluster("c")}, Rest, "", ""},
		{"but not those of another dispatcher", &Job{Open: true, Nominated: []string{"a", "b"}},
			[]Cluster{cluster("a", reserved), cluster("b", runs)}, Rest, "", "several clusters are nominated"},
	} {
		s := Next(c.job, c.clusters, noon)
		if got := fmt.Sprint(s.Nominated); s.Do != c.want || got != "["+c.nominated+"]" || !strings.Contains(s.Message, c.message) {
			t.Errorf("%s: %s %s, %q", c.name, s.Do, got, s.Message)
		}
	}
}

// TestTheFirstOfSeveralClustersRunsTheJob, whatever the order of nomination. The other clusters lose their copies.
func TestTheFirstOfSeveralClustersRunsTheJob(t *testing.T) {
	j := &Job{Open: true, Hedge: 2, Nominated: []string{"a", "b"}, Record: Record{In: []string{"a", "b"}, Hedge: 2, At: noon}}
	clusters := []Cluster{cluster("a", Copy{Gated: true}), cluster("b", Copy{Admitted: true, Reserved: true})}
	if s := Manage(j, clusters, noon); s.Do != Commit || s.Cluster != "b" {
		t.Errorf("%s %s", s.Do, s.Cluster)
	}
	j = &Job{Runs: "b", Record: j.Record}
	if s := Manage(j, clusters, noon); s.Do != Clear || fmt.Sprint(s.Gone, s.Record.In) != "[a] [b]" {
		t.Errorf("%s of %v, on record are %v", s.Do, s.Gone, s.Record.In)
	}
}

// TestARecordHasThePricesOfNominatedClusters, as far as they have a price.
func TestARecordHasThePricesOfNominatedClusters(t *testing.T) {
	a, b := foreseen(cluster("a"), Launches, priced(3, 1000)), foreseen(cluster("b"), Launches, priced(4, 1000))
	c := foreseen(cluster("c"), Fits)
	j := &Job{Open: true, Hedge: 2, Record: Record{Prices: map[string]int64{"old": 1}}}
	for _, want := range []struct {
		clusters  []Cluster
		nominated string
		prices    string
	}{
		{[]Cluster{a, b}, "[a]", "map[a:3000000]"},
		{[]Cluster{a, b}, "[a b]", "map[a:3000000 b:4000000]"},
	} {
		s := Next(j, want.clusters, noon)
		if got := fmt.Sprint(s.Nominated, s.Record.Prices); got != want.nominated+" "+want.prices {
			t.Errorf("%s, want %s %s", got, want.nominated, want.prices)
		}
		j.Nominated, j.Record = s.Nominated, s.Record
	}
	for _, none := range []Cluster{c, foreseen(cluster("d"), Launches, priced(3, 1000), unpriced), cluster("e")} {
		if s := Next(&Job{Open: true}, []Cluster{none}, noon); s.Record.Prices != nil || strings.Contains(s.Record.Encode(), "prices") {
			t.Errorf("%s: %v", none.Name, s.Record.Prices)
		}
	}
}

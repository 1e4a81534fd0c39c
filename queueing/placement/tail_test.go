package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// sliced returns a request for slices of a level within one domain of another level.
func sliced(count int32, required, slice string, size int32) *Request {
	return &Request{Count: count, Pod: cpu(1), Topology: &kueue.PodSetTopologyRequest{Required: &required, PodSetSliceRequiredTopology: &slice,
		PodSetSliceSize: &size}}
}

// TestThePartialSliceIsInOneDomain: where slices do not divide the pods, the last one has fewer.
func TestThePartialSliceIsInOneDomain(t *testing.T) {
	racks := func(room ...int64) *Tree {
		tree := NewTree("racks", hostLevels, nil)
		for i, n := range room {
			tree.SetNode(newNode(fmt.Sprint("n", i), "b", fmt.Sprint("r", i)), roomOf(n))
		}
		return tree
	}
	for name, tc := range map[string]struct {
		room    []int64
		count   int32
		want    []Domain
		refused string
	}{
		"it shares a domain with others":      {[]int64{5, 4}, 5, []Domain{{[]string{"n0"}, 5}}, ""},
		"it has one of its own, and is last":  {[]int64{1, 4}, 5, []Domain{{[]string{"n1"}, 4}, {[]string{"n0"}, 1}}, ""},
		"two racks take a slice each, and it": {[]int64{3, 2}, 5, []Domain{{[]string{"n1"}, 2}, {[]string{"n0"}, 3}}, ""},
		"no rack takes it whole":              {[]int64{5, 5, 1}, 11, nil, `topology "racks" allows to fit only 2 out of 3 slice(s)`},
	} {
		t.Run(name, func(t *testing.T) {
			size := int32(2)
			if tc.count == 11 {
				size = 4 // and 3 remain, one for each rack
			}
			p := racks(tc.room...).Snapshot().Place(sliced(tc.count, "block", "rack", size))
			if diff := cmp.Diff(tc.want, p.Pods); diff != "" || p.Reason != tc.refused {
				t.Errorf("%q (-want +got):\n%s", p.Reason, diff)
			}
		})
	}
}

// TestPartialSlicesHaveAPlaceWhereThereIsOne compares with a search through all domains that could take the partial slice. Each slice is in
// one domain, also once a node is lost.
func TestPartialSlicesHaveAPlaceWhereThereIsOne(t *testing.T) {
	seeds := 20_000
	if testing.Short() {
		seeds = 2_000
	}
	placed, repaired := 0, 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		levels := [][]string{hostLevels, hostLevels[1:], hostLevels[:2], hostLevels[:1]}[r.IntN(4)]
		tree, free := NewTree("racks", levels, nil), map[string]int64{}
		paths := map[string]string{}
		for i := range 1 + r.IntN(10) {
			n := newNode(fmt.Sprint("n", i), fmt.Sprint("b", r.IntN(2)), fmt.Sprint("r", r.IntN(3)))
			free[n.Name] = int64(r.IntN(7))
			tree.SetNode(n, roomOf(free[n.Name]))
			paths[n.Name] = strings.Join(tree.valuesOf(n), "/")
		}
		above := r.IntN(len(levels))
		at := above + r.IntN(len(levels)-above)
		size := int32(2 + r.IntN(4))
		count := size*int32(r.IntN(4)) + int32(r.IntN(int(size)))
		if count < size {
			count += size
		}
		request := sliced(count, levels[above], levels[at], size)
		kind := r.IntN(3)
		switch kind {
		case 1:
			request.Topology.Required, request.Topology.Preferred = nil, request.Topology.Required
		case 2:
			request.Topology.Required = nil
		}
		if r.IntN(4) == 0 {
			request.Leader = cpu(int64(1 + r.IntN(3)))
		}
		// in has the pods of each domain of the level of slices, by the domain of the level of the request.
		prefix := func(path string, level int) string { return strings.Join(strings.Split(path, "/")[:level+1], "/") }
		in, all := map[string]map[string]int32{}, map[string]int32{}
		for name, path := range paths {
			if in[prefix(path, above)] == nil {
				in[prefix(path, above)] = map[string]int32{}
			}
			in[prefix(path, above)][prefix(path, at)] += int32(free[name])
			all[prefix(path, at)] += int32(free[name])
		}
		fits := func(domains map[string]int32) bool {
			sum, least := int32(0), int32(1<<30)
			for _, pods := range domains {
				sum += pods / size
				if pods >= count%size {
					least = min(least, pods/size-(pods-count%size)/size)
				}
			}
			return least < 1<<30 && sum-least >= count/size
		}
		want := kind > 0 && fits(all)
		for _, domains := range in {
			want = want || kind == 0 && fits(domains)
		}
		p := tree.Snapshot().Place(request)
		if request.Leader == nil && (p.Reason == "") != want || request.Leader != nil && p.Reason == "" && !want {
			t.Fatalf("seed %d: %v %d pods of slices of %d in %s within %s of %v: %q", seed, kind, count, size, levels[at], levels[above], all,
				p.Reason)
		}
		if p.Reason != "" {
			continue
		}
		placed++
		used := map[string]int32{}
		for _, d := range slices.Concat(p.Pods, p.Nodes) {
			if v := d.Values[0]; len(d.Values) == 1 && paths[v] != "" {
				used[v] += d.Count
			}
		}
		for _, d := range slices.Concat(p.Leader, p.LeaderNodes) {
			if v := d.Values[0]; len(d.Values) == 1 && paths[v] != "" {
				used[v] += int32(request.Leader["cpu"] / 1000)
			}
		}
		for name, n := range used {
			if int64(n) > free[name] {
				t.Fatalf("seed %d: node %s takes %d and got %d", seed, name, free[name], n)
			}
		}
		inSlices := func(what string, domains []Domain) {
			sum := int32(0)
			parts := tree.podsPerDomain(domains, at)
			for i, part := range parts {
				sum += part.Count
				if rest := part.Count % size; rest != 0 && (i < len(parts)-1 || rest != count%size) {
					t.Fatalf("seed %d: %s: slices of %d of %d pods are apart: %v", seed, what, size, count, domains)
				}
			}
			if sum != count {
				t.Fatalf("seed %d: %s: %d of %d pods have a place: %v", seed, what, sum, count, domains)
			}
		}
		inSlices("placed", p.Pods)
		if request.Leader != nil && len(p.Leader) != 1 {
			t.Fatalf("seed %d: the leader has no place", seed)
		}
		if !tree.hosts || request.Leader != nil {
			continue
		}
		tree.AddUsage(p.Pods, request.Pod, 1)
		lost := map[string]bool{}
		for range 1 + r.IntN(2) {
			d := p.Pods[r.IntN(len(p.Pods))]
			lost[d.Values[0]] = true
			tree.DeleteNode(d.Values[0])
		}
		tree.SetNode(newNode("spare", fmt.Sprint("b", r.IntN(2)), fmt.Sprint("r", r.IntN(3))), roomOf(6))
		if now, reason := tree.Repair(request, p.Pods, nil, lost); reason == "" {
			repaired++
			inSlices(fmt.Sprintf("%v lost of %v", lost, p.Pods), now)
		}
	}
	if repaired < placed/20 {
		t.Errorf("%d of %d were repaired: the cases are too hard to show anything", repaired, placed)
	}
	if placed < seeds/5 || placed > seeds*4/5 {
		t.Errorf("%d of %d were placed: the cases are too easy or too hard to show anything", placed, seeds)
	}
}

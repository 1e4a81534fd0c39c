package placement

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestAssignmentsAreShort(t *testing.T) {
	nodes := func(prefix string, n int) (out []Domain) {
		for i := range n {
			out = append(out, Domain{[]string{fmt.Sprintf("%s%d", prefix, i)}, 8})
		}
		return out
	}
	host := []string{"kubernetes.io/hostname"}
	for _, tc := range []struct {
		name    string
		levels  []string
		domains []Domain
		want    string
	}{
		{"one node", host, nodes("gpu-a-", 1), `[{"domainCount":1,"valuesPerLevel":[{"universal":"gpu-a-0"}],"podCounts":{"universal":8}}]`},
		{"nodes of a rack", host, nodes("gpu-a-", 2),
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"gpu-a-","roots":["0","1"]}}],"podCounts":{"universal":8}}]`},
		{"one more pod on one of them", host, append(nodes("gpu-a-", 1), Domain{[]string{"gpu-a-1"}, 9}),
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"prefix":"gpu-a-","roots":["0","1"]}}],"podCounts":{"individual":[8,9]}}]`},
		{"values that begin and end alike", host, []Domain{{[]string{"ababa"}, 1}, {[]string{"aba"}, 1}},
			`[{"domainCount":2,"valuesPerLevel":[{"individual":{"suffix":"aba","roots":["ab",""]}}],"podCounts":{"universal":1}}]`},
		{"two levels", []string{"block", "rack"}, []Domain{{[]string{"b", "r1"}, 2}, {[]string{"b", "r2"}, 2}},
			`[{"domainCount":2,"valuesPerLevel":[{"universal":"b"},{"individual":{"prefix":"r","roots":["1","2"]}}],"podCounts":{"universal":2}}]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := json.Marshal(Encode(tc.levels, tc.domains).Slices)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	two := Encode(host, append(nodes("a-long-name-of-a-rack-", 200), nodes("quite-another-one-", 200)...))
	if len(two.Slices) != 2 {
		t.Errorf("the nodes of two racks are in %d slices, want one for each prefix", len(two.Slices))
	}
	// The API server's limits, and etcd's of 1.5 MiB.
	var many []Domain
	for i := range 100_000 {
		many = append(many, Domain{[]string{fmt.Sprintf("gke-cluster-pool-%02d-%05x", i/1000, i*7919%1048576)}, 1})
	}
	if got := Encode(host, many); size(got) > 3<<19 || len(got.Slices) > mostSlices {
		t.Errorf("100,000 nodes take %d bytes in %d slices", size(got), len(got.Slices))
	}
}

// An assignment that the API server would refuse is an error, in case it comes from elsewhere.
func TestAssignmentsThatMakeNoSense(t *testing.T) {
	universal := kueue.TopologyAssignmentSliceLevelValues{Universal: new("a")}
	for _, tc := range []struct {
		slice kueue.TopologyAssignmentSlice
		want  string
	}{
		{kueue.TopologyAssignmentSlice{DomainCount: 1}, "slices[0].valuesPerLevel has 0 levels for 1 domains, want 1 levels"},
		{kueue.TopologyAssignmentSlice{DomainCount: 1, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{{}}}, "slices[0].valuesPerLevel[0] needs universal, or 1 roots"},
		{kueue.TopologyAssignmentSlice{DomainCount: 2, ValuesPerLevel: []kueue.TopologyAssignmentSliceLevelValues{universal},
			PodCounts: kueue.TopologyAssignmentSlicePodCounts{Individual: []int32{1}}}, "slices[0].podCounts needs universal, or 2 numbers"},
	} {
		_, err := Decode(&kueue.TopologyAssignment{Levels: []string{"rack"}, Slices: []kueue.TopologyAssignmentSlice{tc.slice}})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one that says %q", err, tc.want)
		}
	}
}

func FuzzAssignmentsAreReadAsWritten(f *testing.F) {
	f.Add("a-1 a-2 b-1", byte(3))
	f.Add("aba ababa ab", byte(1))
	f.Fuzz(func(t *testing.T, names string, counts byte) {
		var domains []Domain
		for i, name := range strings.Fields(names) {
			domains = append(domains, Domain{[]string{"block", name}, int32(i%(int(counts)+1)) + 1})
		}
		got, err := Decode(Encode([]string{"block", "rack"}, domains))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(domains, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

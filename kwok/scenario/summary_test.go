package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatASummarySays(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"as it is": {"", "", `
a Job on a node
Jobs      3, the first after 0s, the last after 20s
Pods      6
Machines  1 fixed, up to 2 bought
Bound     1m20s from the first Job's creation, first come, first served; 1m20s the longest first
          30s at least in any order: so long is all cpu in use
          6 pods start before any Job ends, within 20s: a run takes as much longer as they take to be created and bound
          all machines count as one large one, and nothing takes time but runs and boots
Ends      once all Jobs have ended, after 1h0m0s at the latest
`},
		"what will be left": {"  - pods: 2\n    requests: {cpu: 1}\n    runFor: {atLeast: 1m}\nends: {atMost: 1h}",
			"  - pods: 12\n    requests: {cpu: 1}\n    runFor: {atLeast: 1h}\n  - {weight: 1, pods: 13, mayNotFit: true, requests: {cpu: 1}, runFor: {atLeast: 1m}}\n" +
				"ends: {atMost: 40m}\nfaults: {faults: [{type: Kill, target: muster, every: 10m}]}", `
a Job on a node
Jobs      3, the first after 0s, the last after 20s
Pods      38
Machines  1 fixed, up to 2 bought
Bound     1h0m0s from the first Job's creation, first come, first served; 1h0m0s the longest first
          1h0m0s at least in any order: so long is all cpu in use
          12 pods start before any Job ends, within 0s: a run takes as much longer as they take to be created and bound
          all machines count as one large one, and nothing takes time but runs and boots
          2 Jobs are left out, since no machines have room for all of their pods at once
Ends      once all Jobs have ended, after 40m0s at the latest
          but no order of Jobs is done before 1h0m0s: some will not have ended
Faults    4, which the bound does not know of
`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read([]byte(strings.Replace(sound, tc.old, tc.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimPrefix(tc.want, "\n"), s.Summary()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}

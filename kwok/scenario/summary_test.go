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
Machines  1 fixed, up to 2 launched
Bound     1m20s from the first Job's creation, first come, first served
          30s at least in any order: the time for which all cpu is in use
          6 pods start before any Job ends, within 20s: a run is longer by the time that their creation and binding take
          all machines count as one large machine, and only runs and boots take time
Ends      once all Jobs have ended, after 1h0m0s at the latest
`},
		"what will be left": {"  - pods: 2\n    requests: {cpu: 1}\n    runFor: {atLeast: 1m}\nends: {atMost: 1h}",
			"  - pods: 12\n    requests: {cpu: 1}\n    runFor: {atLeast: 1h}\n  - {weight: 1, pods: 13, mayNotFit: true, requests: {cpu: 1}, " +
				"runFor: {atLeast: 1m}}\nends: {atMost: 40m}\nfaults: {faults: [{type: Kill, target: muster, every: 10m}]}", `
a Job on a node
Jobs      3, the first after 0s, the last after 20s
Pods      38
Machines  1 fixed, up to 2 launched
Bound     1h0m0s from the first Job's creation, first come, first served
          1h0m0s at least in any order: the time for which all cpu is in use
          12 pods start before any Job ends, within 0s: a run is longer by the time that their creation and binding take
          all machines count as one large machine, and only runs and boots take time
          2 Jobs are left out, since their pods do not fit on the machines at once
Ends      once all Jobs have ended, after 40m0s at the latest
          but no order of Jobs ends before 1h0m0s: some will not have ended
Faults    4, which the bound ignores
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

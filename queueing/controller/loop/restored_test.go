package loop

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestWhatARestoredEtcdHasCounts, not what the loop has seen or written since the backup.
func TestWhatARestoredEtcdHasCounts(t *testing.T) {
	version := func(v string) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "uid", ResourceVersion: v}}
	}
	box, k := newInbox(), newKnown()
	k.set(version("30"))
	for _, tc := range []struct {
		name  string
		news  func()
		taken string
	}{
		{"old news", func() { box.OnUpdate(version("10"), version("20")) }, "30"},
		{"a restore", func() { box.OnUpdate(version("20"), version("11")) }, "11"},
		{"what follows", func() { box.OnUpdate(version("11"), version("12")) }, "12"},
		{"a restore and what follows at once", func() {
			box.OnUpdate(version("12"), version("9"))
			box.OnUpdate(version("9"), version("10"))
		}, "10"},
	} {
		tc.news()
		changes, _ := box.take()
		for _, c := range changes {
			if c.restored {
				k.forgetVersion(c.object)
			}
			k.set(c.object)
		}
		if got := k.workload("uid").ResourceVersion; got != tc.taken {
			t.Errorf("%s: version %s is known, want %s", tc.name, got, tc.taken)
		}
	}
}

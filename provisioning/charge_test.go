package provisioning

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestCharges(t *testing.T) {
	booked := func(requests ...string) *Node {
		n := &Node{}
		for _, r := range requests {
			n.Labelled = append(n.Labelled, Booking{Key: r, Namespace: "ns", UID: types.UID("uid-" + r)})
		}
		return n
	}
	inFlight := booked("b")
	inFlight.InFlight = true
	tests := []struct {
		name   string
		launch string
		node   *Node
		want   string
	}{
		{"nobody pays for what nobody has", "", &Node{}, " 100"},
		{"nor for a machine without a node that no launch waits for", "old-1", nil, " 100"},
		{"who has booked it pays", "", booked("a"), "uid-a ns/a 100"},
		{"several do so in equal parts that add up", "", booked("a", "b", "c"), "uid-a ns/a 34, uid-b ns/b 33, uid-c ns/c 33"},
		{"who waits for its machine to boot pays", "gang-1", nil, "gang 100"},
		{"and for it to join", "gang-1", &Node{}, "gang 100"},
		{"also where it may still be taken back", "old-1", &Node{InFlight: true}, "old 100"},
		{"a booking goes before a launch", "gang-1", inFlight, "uid-b ns/b 100"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := &Fleet{InFlight: map[string]bool{"gang-1": true}}
			var got []string
			for _, c := range f.Charges(tc.launch, tc.node, 100) {
				who := string(c.UID)
				if c.Booking != nil {
					who += " " + c.Booking.Namespace + "/" + c.Booking.Key
				}
				got = append(got, fmt.Sprint(who, " ", c.MicroUSDPerHour))
			}
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("%q pay, want %q", text, tc.want)
			}
		})
	}
}

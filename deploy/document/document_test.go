package document

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type house struct {
	Name  string         `json:"name"`
	Rooms []room         `json:"rooms"`
	Owner *room          `json:"owner"`
	Keys  map[string]int `json:"keys"`
}

type room struct {
	Doors int `json:"doors"`
}

func TestAReaderTellsOfAFieldWhereItStands(t *testing.T) {
	text := "# a house\nname: old\nrooms:\n- doors: 1\n- doors: 2\n"
	h := house{}
	d := Read([]byte(text), &h)
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	d.Refuse(field.NewPath("rooms").Index(1).Child("doors"), "%d is too many", h.Rooms[1].Doors)
	d.Refuse(field.NewPath("rooms").Index(0).Child("windows"), "there is none")
	d.Refuse(field.NewPath("owner", "name"), "it is missing")
	want := "line 2: owner.name: it is missing\nline 4: rooms[0].windows: there is none\nline 5: rooms[1].doors: 2 is too many"
	if diff := cmp.Diff(want, d.Err().Error()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestWhatIsNoDocument(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":      {"", "line 1: the document is empty"},
		"a comment":    {"# soon\n", "line 1: the document is empty"},
		"a list":       {"- name: a\n", `line 1: a list is not a mapping; write fields with their values under it`},
		"a word":       {"house\n", `line 1: "house" is not a mapping; write fields with their values under it`},
		"a bad number": {"keys:\n  front: x\n", `line 2: keys[front]: "x" is not a whole number of 64 bits`},
	} {
		t.Run(name, func(t *testing.T) {
			err := Read([]byte(tc.text), &house{}).Err()
			if err == nil || err.Error() != tc.want {
				t.Errorf("told %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAnchorsAndNothingAreTaken(t *testing.T) {
	h := house{Name: "as it was"}
	if err := Read([]byte("name: ~\nrooms: [&a {doors: 2}, *a]\nkeys: {front: 3}\n"), &h).Err(); err != nil {
		t.Fatal(err)
	}
	want := house{Name: "as it was", Rooms: []room{{2}, {2}}, Keys: map[string]int{"front": 3}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

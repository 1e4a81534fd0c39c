package kinds

import (
	"strings"
	"testing"
)

func TestExecute(t *testing.T) {
	kinds := []*Kind{{Stanza: Stanza{Group: "batch", Kind: "Job"}}, {Stanza: Stanza{Group: "ray.io", Kind: "RayJob"}}}
	for name, tt := range map[string]struct{ text, want, wrong string }{
		"nothing to fill in": {text: "a: b\n", want: "a: b\n"},
		"no argument":        {text: "x: << .Owners >>!", want: "x: ['batch/Job', 'ray.io/RayJob']!"},
		"arguments": {
			text: "<< .Write \"a/b\" \"labels\" `c/d` \"'true'\" >><< .Owners >>",
			want: `(dyn(object).?a.?b.hasValue() ? [] : [JSONPatch{op: "add", path: "/a/b", value: {}}]) + ` +
				`(dyn(object).?a.?b.?labels.hasValue() ? [] : [JSONPatch{op: "add", path: "/a/b/labels", value: {}}]) + ` +
				`[JSONPatch{op: "add", path: "/a/b/labels/c~1d", value: 'true'}]['batch/Job', 'ray.io/RayJob']`,
		},
		"an unknown method":   {text: "<< .Nothing >>", wrong: "<< .Nothing >>: there is no Nothing"},
		"too few arguments":   {text: "<< .Held >>", wrong: "0 arguments are too few"},
		"too many arguments":  {text: `<< .Owners "a" >>`, wrong: "1 arguments are too few or too many"},
		"an open quote":       {text: `<< .Held "object >>`, wrong: `"object is not in quotes`},
		"an argument without": {text: `<< .Held object >>`, wrong: "object is not in quotes"},
		"no end":              {text: "a << .Owners", wrong: "there is no >> after << .Owners"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := execute("x.yaml", tt.text, kinds)
			if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
				t.Fatalf("error %v, want %q", err, tt.wrong)
			}
			if string(got) != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

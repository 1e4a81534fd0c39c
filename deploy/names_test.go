package deploy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNoNameIsLeft of the files in what is installed under other names, neither as a field nor
// in an expression.
func TestNoNameIsLeft(t *testing.T) {
	other := Names{Namespace: "batch", ServiceAccount: "holder", Dashboard: "page"}
	for _, m := range []Mutations{ByPolicies, ByWebhook, ByControllers} {
		objects, err := Manifests(Halves...)
		if err != nil {
			t.Fatal(err)
		}
		if objects, err = m.By(objects); err != nil {
			t.Fatal(err)
		}
		users := 0
		for _, o := range other.In(objects) {
			text, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), Namespace) {
				t.Errorf("%s %s still has %s", o.GetKind(), o.GetName(), Namespace)
			}
			if o.GetNamespace() != "" && o.GetNamespace() != "batch" {
				t.Errorf("%s %s is in namespace %s", o.GetKind(), o.GetName(), o.GetNamespace())
			}
			for _, account := range []string{`"kind":"ServiceAccount","name":"muster`, `"kind":"ServiceAccount","metadata":{"name":"muster`} {
				if strings.Contains(string(text), account) {
					t.Errorf("%s %s is for another account: %s", o.GetKind(), o.GetName(), text)
				}
			}
			users += strings.Count(string(text), "'system:serviceaccount:batch:holder'")
		}
		if users == 0 {
			t.Error("no policy names the account")
		}
		if diff := cmp.Diff(objects, DefaultNames.In(objects)); diff != "" {
			t.Errorf("the usual names change something (-want +got)\n%s", diff)
		}
	}
}

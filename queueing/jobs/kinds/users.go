package kinds

import "k8s.io/apimachinery/pkg/util/validation/field"

// CompileAll returns the kinds of stanzas that users have written, or all that is wrong with
// them.
func CompileAll(stanzas []Stanza, path *field.Path) (out []*Kind, wrong field.ErrorList) {
	known := map[string]string{}
	for _, k := range BuiltIn() {
		known[k.id()] = "Muster knows it by itself"
	}
	known["batch/Job"] = "Muster knows it by itself"
	for i, s := range stanzas {
		at := path.Index(i)
		k, faults := Compile(s, at)
		wrong = append(wrong, faults...)
		if why := known[k.id()]; why != "" {
			wrong = append(wrong, field.Invalid(at.Child("kind"), s.Kind, why+"; remove the stanza"))
		}
		known[k.id()] = "there is a stanza for it above"
		out = append(out, k)
	}
	return out, wrong
}

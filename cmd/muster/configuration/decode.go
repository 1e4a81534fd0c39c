package configuration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fault is something wrong in a file, on one of its lines.
type fault struct {
	line int
	text string
}

// decoder fills Go values from YAML by their JSON names, as Kubernetes does, but
// takes nothing that it does not know, and remembers where each field stands.
// Other decoders do one of the two.
type decoder struct {
	lines  map[string]int
	faults []fault
}

func (d *decoder) fail(n *yaml.Node, path *field.Path, format string, args ...any) {
	d.faults = append(d.faults, fault{n.Line, path.String() + ": " + fmt.Sprintf(format, args...)})
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// decode sets v, which must be settable, to what n says.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path *field.Path) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.lines[path.String()] = n.Line
	switch {
	case n.Tag == "!!null":
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem(), path)
	case v.Addr().Type().Implements(unmarshaler):
		d.unmarshal(n, v, path)
	case v.Kind() == reflect.Struct:
		d.decodeStruct(n, v, path)
	case v.Kind() == reflect.Map:
		d.decodeMap(n, v, path)
	case v.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n, path, "%s is no list; write it as one, such as [a, b]", said(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.decode(item, v.Index(i), path.Index(i))
		}
	default:
		d.decodeScalar(n, v, path)
	}
}

// examples of what types that read themselves take.
var examples = map[reflect.Type]string{
	reflect.TypeFor[metav1.Duration]():   "one such as 90s, 5m or 1h30m",
	reflect.TypeFor[resource.Quantity](): "one such as 500m, 4 or 16Gi",
}

// unmarshal is for types that read themselves, such as durations and amounts.
func (d *decoder) unmarshal(n *yaml.Node, v reflect.Value, path *field.Path) {
	var plain any
	err := n.Decode(&plain)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(plain); err == nil {
			err = json.Unmarshal(text, v.Addr().Interface())
		}
	}
	if err != nil {
		d.fail(n, path, "%s is no %s; write %s", said(n), strings.ToLower(v.Type().Name()), cmp.Or(examples[v.Type()], "what can be read: "+err.Error()))
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value, path *field.Path) {
	known := fieldsOf(v)
	d.pairs(n, path, func(key *yaml.Node, value *yaml.Node) {
		f, ok := known[key.Value]
		if !ok {
			d.fail(key, path.Child(key.Value), "there is no such field; there are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			return
		}
		d.decode(value, f, path.Child(key.Value))
	})
}

// fieldsOf are the fields of a struct by their JSON names, with those of the
// structs that are inlined in it.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	for f, value := range v.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && (name == "" || options == "inline"):
			maps.Copy(out, fieldsOf(value))
		default:
			out[name] = value
		}
	}
	return out
}

func (d *decoder) decodeMap(n *yaml.Node, v reflect.Value, path *field.Path) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, path, func(key *yaml.Node, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(value, item, path.Key(key.Value))
		v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), item)
	})
}

// pairs calls f for each pair of a mapping, and tells of keys that come twice.
func (d *decoder) pairs(n *yaml.Node, path *field.Path, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "%s has no fields; write fields with their values under it", said(n))
		return
	}
	seen := map[string]bool{}
	for pair := range slices.Chunk(n.Content, 2) {
		key, value := pair[0], pair[1]
		if seen[key.Value] {
			d.fail(key, path.Child(key.Value), "it is there twice; keep one")
			continue
		}
		seen[key.Value] = true
		f(key, value)
	}
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value, path *field.Path) {
	refuse := func(want string) { d.fail(n, path, "%s is no %s", said(n), want) }
	switch {
	case v.Kind() == reflect.String && n.Tag == "!!str":
		v.SetString(n.Value)
	case v.Kind() == reflect.String:
		refuse("text; put it in quotes if it is meant as text")
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if n.Tag != "!!bool" || err != nil {
			refuse("boolean; write true or false")
			return
		}
		v.SetBool(b)
	case v.CanInt():
		i, err := strconv.ParseInt(n.Value, 0, v.Type().Bits())
		if n.Tag != "!!int" || err != nil {
			refuse(fmt.Sprintf("whole number of %d bits", v.Type().Bits()))
			return
		}
		v.SetInt(i)
	case v.CanFloat():
		f, err := strconv.ParseFloat(n.Value, 64)
		if (n.Tag != "!!int" && n.Tag != "!!float") || err != nil {
			refuse("number")
			return
		}
		v.SetFloat(f)
	default:
		refuse("value that can be set here")
	}
}

// said is how a message names what stands in the file.
func said(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a group of fields"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

// Package document reads a handwritten YAML document, such as settings or a scenario, into a
// Go value by the JSON names of its fields. It rejects unknown fields, and reports all errors
// at once, each with its line and field.
package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Fault is an error on a line.
type Fault struct {
	Line int
	// Path of the field; empty if the fault is the document's.
	Path string
	// Text says what is there and what is allowed.
	Text string
}

func (f Fault) String() string {
	if f.Path == "" {
		return f.Text
	}
	return f.Path + ": " + f.Text
}

// Faults are all errors of a document, by line. As an error it has a line of text for each.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fmt.Sprintf("line %d: %s", fault.Line, fault)
	}
	return strings.Join(lines, "\n")
}

// Document is a document that was read. It knows the line of each field, so that its reader
// can report further errors in the same way.
type Document struct {
	lines  map[string]int
	faults Faults
}

// What returns the apiVersion and kind of a document, ignoring everything else; both are
// empty if the text is not a document.
func What(text []byte) (m metav1.TypeMeta) {
	if root, err := parse(text); err == nil && root.Kind == yaml.MappingNode {
		for pair := range slices.Chunk(root.Content, 2) {
			switch pair[0].Value {
			case "apiVersion":
				m.APIVersion = pair[1].Value
			case "kind":
				m.Kind = pair[1].Value
			}
		}
	}
	return m
}

// Read fills the value that into points to. Faults are kept for Err, together with those of
// the reader. If the text is not YAML, that is the only fault.
func Read(text []byte, into any) *Document {
	d := &Document{lines: map[string]int{}}
	root, err := parse(text)
	if err != nil {
		d.faults = append(d.faults, faultOf(err))
		return d
	}
	d.fill(root, reflect.ValueOf(into).Elem(), nil)
	return d
}

func parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the document is empty")
	case err != nil:
		return nil, err
	}
	switch err := decoder.Decode(&another); {
	case err == nil:
		return nil, fmt.Errorf("line %d: more than one document", another.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return document.Content[0], nil
}

// faultOf is the YAML parser's error, on the line that its message names.
func faultOf(err error) Fault {
	if _, named, ok := strings.Cut(err.Error(), "line "); ok {
		digits, text, _ := strings.Cut(named, ": ")
		if line, bad := strconv.Atoi(digits); bad == nil {
			return Fault{Line: line, Text: text}
		}
	}
	return Fault{Line: 1, Text: err.Error()}
}

// Refuse adds a fault of a field, at the field's line, or at its parent's if the field is
// missing.
func (d *Document) Refuse(path *field.Path, format string, args ...any) {
	name := nameOf(path)
	d.faults = append(d.faults, Fault{Line: d.Line(name), Path: name, Text: fmt.Sprintf(format, args...)})
}

// Take adds the errors that a part of the document reports about itself.
func (d *Document) Take(errs field.ErrorList) {
	for _, e := range errs {
		d.faults = append(d.faults, Fault{Line: d.Line(e.Field), Path: e.Field, Text: e.ErrorBody()})
	}
}

// nameOf returns the path as text; the document's own is empty.
func nameOf(path *field.Path) string {
	if path == nil {
		return ""
	}
	return path.String()
}

// Has reports whether the field is set.
func (d *Document) Has(path string) bool {
	_, ok := d.lines[path]
	return ok
}

// Line returns the line of the field, or of its parent if it is missing.
func (d *Document) Line(path string) int {
	for {
		if line, ok := d.lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return max(d.lines[""], 1)
		}
		path = path[:cut]
	}
}

// Err returns nil without faults, else Faults.
func (d *Document) Err() error {
	if len(d.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(d.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return d.faults
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// fill sets v from n. Structs, maps and lists are walked, so that each of their fields has a
// line; any other type unmarshals itself.
func (d *Document) fill(n *yaml.Node, v reflect.Value, path *field.Path) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.lines[nameOf(path)] = n.Line
	switch {
	case n.Tag == "!!null":
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.fill(n, v.Elem(), path)
	case v.Addr().Type().Implements(unmarshaler):
		d.leaf(n, v, path)
	case v.Kind() == reflect.Struct:
		known := fieldsOf(v)
		d.each(n, path, func(key, value *yaml.Node) {
			child := path.Child(key.Value)
			if f, ok := known[key.Value]; ok {
				d.fill(value, f, child)
			} else {
				d.lines[child.String()] = key.Line
				d.Refuse(child, "unknown field; known fields are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
		})
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		d.each(n, path, func(key, value *yaml.Node) {
			item := reflect.New(v.Type().Elem()).Elem()
			d.fill(value, item, path.Key(key.Value))
			v.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), item)
		})
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			d.fill(item, v.Index(i), path.Index(i))
		}
	default:
		d.leaf(n, v, path)
	}
}

// fieldsOf returns the fields of a struct by their JSON names, inlined structs included.
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

// each calls f for every pair of a mapping, and adds a fault for duplicate keys.
func (d *Document) each(n *yaml.Node, path *field.Path, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.Refuse(path, "%s is not a mapping; write fields with their values under it", said(n))
		return
	}
	seen := map[string]bool{}
	for pair := range slices.Chunk(n.Content, 2) {
		if key := pair[0]; seen[key.Value] {
			d.faults = append(d.faults, Fault{Line: key.Line, Path: path.Child(key.Value).String(), Text: "duplicate field"})
		} else {
			seen[key.Value] = true
			f(key, pair[1])
		}
	}
}

// leaf unmarshals the value as JSON.
func (d *Document) leaf(n *yaml.Node, v reflect.Value, path *field.Path) {
	var plain any
	err := n.Decode(&plain)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(plain); err == nil {
			err = json.Unmarshal(text, v.Addr().Interface())
		}
	}
	if err != nil {
		d.Refuse(path, "%s is not a %s", said(n), wanted(v.Type(), err))
	}
}

// wanted describes the values of a type.
func wanted(t reflect.Type, err error) string {
	switch {
	case t.Kind() == reflect.Bool:
		return "boolean; write true or false"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return fmt.Sprintf("whole number of %d bits", t.Bits())
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.String:
		return "string; quote it"
	case t.Kind() == reflect.Slice:
		return "list; write it as one, such as [a, b]"
	case t.Name() == "Duration":
		return "duration; write one such as 90s, 5m or 1h30m"
	case t.Name() == "Quantity":
		return "quantity; write one such as 500m, 4 or 16Gi"
	case t.Name() == "Unstructured":
		return "Kubernetes object; give it apiVersion and kind"
	}
	return fmt.Sprintf("%s: %v", strings.ToLower(t.Name()), err)
}

// said quotes a value of the file in a message.
func said(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

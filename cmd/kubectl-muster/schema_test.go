package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/cmd/view"
)

var rewrite = flag.Bool("rewrite", false, "write docs/schemas again")

// schemaVersion is the folder of docs/schemas. Fields may be added to a version; it goes up when one is removed or changes its meaning.
const schemaVersion = "v1"

// published are the types that the commands write with -o json.
var published = map[string]reflect.Type{
	"capacity":   reflect.TypeFor[[]view.GroupLine](),
	"clusters":   reflect.TypeFor[[]view.ClusterLine](),
	"cost":       reflect.TypeFor[view.Costs](),
	"explain":    reflect.TypeFor[view.Explanation](),
	"history":    reflect.TypeFor[[]view.PastJob](),
	"history-by": reflect.TypeFor[[]view.PastSum](),
	"jobs":       reflect.TypeFor[[]view.JobLine](),
	"nodes":      reflect.TypeFor[view.Nodes](),
	"queue":      reflect.TypeFor[[]view.QueueLine](),
	"racks":      reflect.TypeFor[[]view.RackLine](),
}

// schemaFor derives the schema of a type, which allows no other fields.
func schemaFor(t *testing.T, of reflect.Type) *jsonschema.Schema {
	t.Helper()
	out, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[resource.Quantity](): {Type: "string"},
		reflect.TypeFor[time.Time]():         {Type: "string", Format: "date-time"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// schemaOf returns the name of the schema of an answer; empty if none is published.
func schemaOf(a answer) string {
	switch a.(type) {
	case groupLines, groupsWithoutDevices:
		return "capacity"
	case clusterLines:
		return "clusters"
	case costs:
		return "cost"
	case explanation, pending:
		return "explain"
	case pastJobs:
		return "history"
	case pastSums:
		return "history-by"
	case jobList, noJobsOf:
		return "jobs"
	case nodes:
		return "nodes"
	case queueAnswer, queueLines, recordedAnswer:
		return "queue"
	case rackLines:
		return "racks"
	}
	return ""
}

// conforms validates the JSON of an answer against its schema.
func conforms(t *testing.T, a answer) {
	t.Helper()
	name := schemaOf(a)
	if name == "" {
		return
	}
	resolved, err := schemaFor(t, published[name]).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("the answer does not conform to the schema %s: %v\n%s", name, err, text)
	}
}

// TestSchemasArePublished holds docs/schemas against the types. Run it with -rewrite to write them. printed validates the answers of
// all tests.
func TestSchemasArePublished(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "schemas", schemaVersion)
	for name, of := range published {
		schema := schemaFor(t, of)
		open(schema)
		schema.Schema = "https://json-schema.org/draft/2020-12/schema"
		schema.Title = "Output of kubectl muster " + name + " -o json, " + schemaVersion
		want, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		file := filepath.Join(folder, name+".json")
		if *rewrite {
			if err := os.WriteFile(file, want, 0o644); err != nil { //nolint:gosec // a public document
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(file); err != nil || string(have) != string(want) {
			t.Errorf("%s is not the schema of %s (%v): run go test ./cmd/kubectl-muster -run TestSchemasArePublished -rewrite", file, of, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(files) != len(published) {
		t.Errorf("%s has %d files for %d schemas (%v)", folder, len(files), len(published), err)
	}
}

// open lets objects have fields that are added later.
func open(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	for _, property := range s.Properties {
		open(property)
	}
	open(s.Items)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		s.AdditionalProperties = nil
	}
	open(s.AdditionalProperties)
}

// readInPython are the fields of an answer that docs/python.md reads.
var readInPython = regexp.MustCompile(`answer(?:\["(\w+)"\]|\.get\("(\w+)")(?:\["(\w+)"\])?|"(\w+)" in answer`)

// TestPythonReadsFieldsThatAreThere of the schema of explain.
func TestPythonReadsFieldsThatAreThere(t *testing.T) {
	text, err := os.ReadFile("../../docs/python.md")
	if err != nil {
		t.Fatal(err)
	}
	all := readInPython.FindAllStringSubmatch(string(text), -1)
	if len(all) < 5 {
		t.Errorf("docs/python.md reads %d fields: they are not found any more", len(all))
	}
	for _, m := range all {
		field := schemaFor(t, published["explain"]).Properties[m[1]+m[2]+m[4]]
		if field == nil || m[3] != "" && field.Properties[m[3]] == nil {
			t.Errorf("docs/python.md reads %s, which explain does not write", m[0])
		}
	}
}

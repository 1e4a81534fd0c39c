package app

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cmd/muster/configuration"
)

// TestTheChartChecksTheSettings by a schema with all of their fields, so that a misspelt one is refused at installation and not when
// muster starts. -update writes it again.
func TestTheChartChecksTheSettings(t *testing.T) {
	const path = "../../../deploy/charts/muster/values.schema.json"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	schema := schemaOf(reflect.TypeFor[configuration.Configuration]())
	fields := schema["properties"].(map[string]any)
	fields["verbosity"] = map[string]any{"type": "integer", "minimum": 0}
	// The chart sets these itself.
	for _, name := range []string{"apiVersion", "kind", "namespace", "kubeconfig", "healthProbeBindAddress", "metricsBindAddress"} {
		fields[name] = false
	}
	const defs = "\n  \"$defs\": "
	written, _, found := strings.Cut(string(text), defs)
	if !found {
		t.Fatalf("%s has no $defs", path)
	}
	generated, err := json.MarshalIndent(map[string]any{"settings": schema}, "  ", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := written + defs + string(generated) + "\n}\n"
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("run it with -update (-settings +values.schema.json)\n%s", diff)
	}
}

// schemaOf returns the JSON schema of a type. A type of another module with its own unmarshaller may be anything.
func schemaOf(of reflect.Type) map[string]any {
	switch {
	case of.Kind() == reflect.Pointer:
		return schemaOf(of.Elem())
	case of == reflect.TypeFor[metav1.Duration]():
		return map[string]any{"type": "string"}
	case reflect.PointerTo(of).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return map[string]any{}
	}
	switch of.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(of.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(of.Elem())}
	case reflect.Struct:
		fields := map[string]any{}
		addFields(fields, of)
		return map[string]any{"type": "object", "additionalProperties": false, "properties": fields}
	default:
		return map[string]any{}
	}
}

// addFields adds the fields of a struct, and of those inlined in it.
func addFields(fields map[string]any, of reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline") || f.Anonymous && name == "":
			addFields(fields, f.Type)
		default:
			fields[name] = schemaOf(f.Type)
		}
	}
}

package kinds

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/json"
)

// costLimit bounds what one evaluation may cost, as kube-apiserver bounds that of a
// validation rule: an expression of a user must not hold the queues up.
const costLimit = 1_000_000

// language is what expressions are written in: CEL with optional fields, and the functions
// of its extensions for strings, lists and numbers.
var language = func() *cel.Env {
	env, err := cel.NewEnv(
		cel.OptionalTypes(), ext.Strings(), ext.Lists(), ext.Math(), cel.CrossTypeNumericComparisons(true),
		cel.Variable("self", cel.DynType), cel.Variable("job", cel.DynType),
		cel.Variable("key", cel.DynType), cel.Variable("types", cel.ListType(cel.StringType)),
	)
	if err != nil {
		panic(err) // the declarations are constants
	}
	return env
}()

// admission is the part of the language that admission policies have, too.
var admission = func() *cel.Env {
	env, err := cel.NewEnv(cel.OptionalTypes(), ext.Strings(ext.StringsVersion(2)), cel.CrossTypeNumericComparisons(true),
		cel.Variable("self", cel.DynType))
	if err != nil {
		panic(err) // the declarations are constants
	}
	return env
}()

// expression is compiled CEL whose values are of type T.
type expression[T any] struct {
	text    string
	program cel.Program
}

// compile compiles an expression; that of an empty text has no value.
func compile[T any](text string) (expression[T], error) {
	out := expression[T]{text: text}
	if text == "" {
		return out, nil
	}
	ast, issues := language.Compile(text)
	if issues.Err() != nil {
		return out, fmt.Errorf("%q is not CEL: %w", text, issues.Err())
	}
	var zero T
	if want := celType(zero); ast.OutputType() != cel.DynType && !want.IsAssignableType(ast.OutputType()) {
		return out, fmt.Errorf("%q has values of type %s, but they must be of type %s; correct it", text, ast.OutputType(), want)
	}
	program, err := language.Program(ast, cel.CostLimit(costLimit), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return out, fmt.Errorf("%q: %w", text, err)
	}
	out.program = program
	return out, nil
}

func celType(value any) *cel.Type {
	switch value.(type) {
	case bool:
		return cel.BoolType
	case int64:
		return cel.IntType
	case string:
		return cel.StringType
	case []string:
		return cel.ListType(cel.DynType)
	}
	return cel.DynType
}

// scope is what an expression sees.
type scope struct {
	self, job any
	key       string
	types     []string
}

// scopeOf is what expressions about the whole object see.
func scopeOf(object map[string]any) scope {
	return scope{self: object, job: object, types: conditionTypes(object)}
}

// conditionTypes are the types of the conditions of an object that are True.
func conditionTypes(object map[string]any) []string {
	conditions, _ := pointer{"status", "conditions"}.get(object)
	list, _ := conditions.([]any)
	out := []string{}
	for _, item := range list {
		c, _ := item.(map[string]any)
		if name, ok := c["type"].(string); ok && c["status"] == "True" {
			out = append(out, name)
		}
	}
	return out
}

// of evaluates the expression; without a text it is otherwise.
func (e expression[T]) of(s scope, otherwise T) (T, error) {
	if e.program == nil {
		return otherwise, nil
	}
	value, _, err := e.program.Eval(map[string]any{"self": s.self, "job": s.job, "key": s.key, "types": s.types})
	if err != nil {
		return otherwise, fmt.Errorf("%s: %w", e.text, err)
	}
	if value.Type() == types.NullType {
		return otherwise, nil
	}
	native, err := native[T](value)
	if err != nil {
		return otherwise, fmt.Errorf("%s: the value is of type %s, not %T", e.text, value.Type().TypeName(), otherwise)
	}
	return native, nil
}

// native returns a value of CEL as one of Go; an object as unstructured objects have it.
func native[T any](value ref.Val) (out T, err error) {
	if _, ok := any(out).(map[string]any); !ok {
		x, err := value.ConvertToNative(reflect.TypeFor[T]())
		if err != nil {
			return out, err
		}
		return x.(T), nil
	}
	x, err := value.ConvertToNative(types.JSONValueType)
	if err != nil {
		return out, err
	}
	text, err := x.(*structpb.Value).MarshalJSON()
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

// is evaluates a condition, which an error makes false.
func (e expression[T]) is(s scope) bool {
	var value any
	value, err := e.of(s, *new(T))
	yes, _ := value.(bool)
	return err == nil && yes
}

// element is one of a list, one value of a map, or an object itself.
type element struct {
	pointer
	key   string
	value map[string]any
}

// elements are the objects of the list or map at p, those of a map by their key.
func elements(object map[string]any, p pointer) (out []element) {
	at, _ := p.get(object)
	add := func(key string, value any) {
		if o, ok := value.(map[string]any); ok {
			out = append(out, element{slices.Concat(p, pointer{key}), key, o})
		}
	}
	switch x := at.(type) {
	case []any:
		for i, value := range x {
			add(strconv.Itoa(i), value)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			add(key, x[key])
		}
	}
	return out
}

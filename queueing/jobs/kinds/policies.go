package kinds

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

// startPolicy keeps queued jobs of all kinds from starting by themselves.
const startPolicy = "muster-jobs-start"

//go:embed jobs.yaml.tmpl
var policies string

// Policies returns the admission policies for batch/v1 Jobs and the kinds, as YAML.
func Policies(kinds []*Kind) ([]byte, error) { return execute("jobs.yaml", policies, kinds) }

// execute renders a template: << .Rules "argument" >> is replaced by the result of that method of a writer. text/template finds methods
// by name at run time, so the linker would keep all methods of all types, and the program would be twice as large.
func execute(name, text string, kinds []*Kind) ([]byte, error) {
	w := writer{kinds}
	methods := map[string]any{
		"Held": w.Held, "NotHeld": w.NotHeld, "Hold": w.Hold, "Defaults": w.Defaults, "Delegate": w.Delegate, "Owners": w.Owners,
		"NotPart": w.NotPart, "IsPart": w.IsPart, "Resource": w.Resource, "SameTemplates": w.SameTemplates, "SameParts": w.SameParts,
		"Requeues": w.Requeues, "Marked": w.Marked, "Orphans": w.Orphans, "Rules": w.Rules, "DefaultRules": w.DefaultRules, "DelegateRules": w.DelegateRules,
		"Foreign": w.Foreign, "Annotations": w.Annotations, "ScaleRules": w.ScaleRules, "Refusals": w.Refusals, "PodAlone": w.PodAlone, "PodGuarded": w.PodGuarded, "Write": w.Write,
		"PodRule": w.PodRule, "ServingRules": w.ServingRules, "Submitted": w.Submitted,
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<< .")
		out.WriteString(before)
		if !found {
			return []byte(out.String()), nil
		}
		call, after, ended := strings.Cut(rest, " >>")
		if !ended {
			return nil, fmt.Errorf("writing the policies %s: there is no >> after << .%s", name, call)
		}
		value, err := callOf(methods, call)
		if err != nil {
			return nil, fmt.Errorf("writing the policies %s: << .%s >>: %w", name, call, err)
		}
		out.WriteString(value)
		text = after
	}
}

// callOf returns the value of a call, such as Rules "CREATE".
func callOf(methods map[string]any, call string) (string, error) {
	name, rest, _ := strings.Cut(call, " ")
	var arguments []string
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return "", fmt.Errorf("its argument %s is not in quotes", rest)
		}
		argument, err := strconv.Unquote(quoted)
		if err != nil {
			return "", fmt.Errorf("its argument %s: %w", quoted, err)
		}
		arguments, rest = append(arguments, argument), rest[len(quoted):]
	}
	switch f := methods[name].(type) {
	case func() string:
		if len(arguments) == 0 {
			return f(), nil
		}
	case func(string) string:
		if len(arguments) == 1 {
			return f(arguments[0]), nil
		}
	case func(metadata, field, key, value string) string:
		if len(arguments) == 4 {
			return f(arguments[0], arguments[1], arguments[2], arguments[3]), nil
		}
	default:
		return "", fmt.Errorf("there is no %s", name)
	}
	return "", fmt.Errorf("%d arguments are too few or too many", len(arguments))
}

// writer writes the parts of policies that depend on the kinds. An expression checks spec.suspend, which most kinds have, after it has
// excluded all other kinds. It checks Jobs first, since they are the most frequent.
type writer struct{ kinds []*Kind }

// usual is how most kinds are held, batch/v1 Jobs among them.
var usual = struct {
	pointer
	held string
}{pointer{"spec", "suspend"}, "true"}

func (k *Kind) id() string { return k.Group + "/" + k.Kind }

// literal returns a JSON value as CEL, which has the same literals.
func literal(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return string(text)
}

// list returns a list of texts as CEL.
func list(texts []string) string { return "['" + strings.Join(texts, "', '") + "']" }

// byKind returns an expression that has the value of each kind, as much as possible in one
// comparison, and otherwise another value.
func (w writer) byKind(value func(*Kind) string, otherwise string) string {
	of := map[string][]string{}
	for _, k := range w.kinds {
		if v := value(k); v != otherwise {
			of[v] = append(of[v], k.id())
		}
	}
	var out strings.Builder
	for _, v := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(&out, "request.kind.group + '/' + request.kind.kind in %s ? %s : ", list(of[v]), v)
	}
	if out.Len() == 0 {
		return otherwise
	}
	return "(request.kind.group == 'batch' ? " + otherwise + " : " + out.String() + otherwise + ")"
}

// Held reports in CEL whether an object is kept from having pods.
func (w writer) Held(object string) string {
	is := func(p pointer, held string) string {
		return fmt.Sprintf("%s.orValue(null) == %s", p.optional("dyn("+object+")"), held)
	}
	return w.byKind(func(k *Kind) string { return is(k.suspend, literal(k.Stanza.Suspend.Held)) }, is(usual.pointer, usual.held))
}

// NotHeld reports the contrary of the object of a request.
func (w writer) NotHeld() string { return "!" + w.inParentheses(w.Held("object")) }

func (writer) inParentheses(expression string) string {
	if strings.HasPrefix(expression, "(") {
		return expression
	}
	return "(" + expression + ")"
}

// Hold is the patch that keeps an object from having pods.
func (w writer) Hold() string {
	return w.byKind(func(k *Kind) string { return patch(k.suspend, literal(k.Stanza.Suspend.Held)) }, patch(usual.pointer, usual.held))
}

// patch sets a field, with the objects above it that may be missing.
func patch(p pointer, value string) string {
	var out []string
	path := ""
	for i, part := range p {
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
		switch {
		case i == len(p)-1:
			out = append(out, fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: %s}]`, path, value))
		case i > 0:
			out = append(out, fmt.Sprintf(`(%s.hasValue() ? [] : [JSONPatch{op: "add", path: %q, value: {}}])`,
				p[:i+1].optional("dyn(object)"), path))
		}
	}
	return strings.Join(out, " + ")
}

// Defaults is the patch of what the user left open of an object.
func (w writer) Defaults() string {
	return w.byKind(func(k *Kind) string {
		var out []string
		for _, d := range k.defaults {
			out = append(out, fmt.Sprintf("(%s.hasValue() ? [] : %s)", d.optional("dyn(object)"), patch(d.pointer, d.value)))
		}
		if len(out) == 0 {
			return "[]"
		}
		return strings.Join(out, " + ")
	}, "[]")
}

// Delegate is the patch that has an object run in another cluster, if the LocalQueue in params
// says that its jobs do, and the object does not name another controller.
func (w writer) Delegate() string {
	set := func(p pointer, own string) string {
		return fmt.Sprintf("!(%s.orValue('') in ['', %s]) ? [] : %s", p.optional("dyn(object)"), literal(own),
			patch(p, literal(kueue.MultiKueueControllerName)))
	}
	delegated := fmt.Sprintf("params.?status.?conditions.orValue([]).exists(c, c.type == '%s' && c.status == 'True')",
		workload.ConditionDelegated)
	return "!" + delegated + " ? [] : " + w.byKind(func(k *Kind) string {
		if k.managedBy == nil {
			return "[]"
		}
		return "(" + set(k.managedBy, k.Stanza.ManagedBy.Own) + ")"
	}, "("+set(pointer{"spec", "managedBy"}, batchv1.JobControllerName)+")")
}

// owners are the kinds of objects that queue as a whole, with all that they control.
func (w writer) owners() (out []string) {
	for _, k := range w.kinds {
		out = append(out, k.id())
	}
	return slices.Sorted(slices.Values(out))
}

// Owners are those kinds in CEL.
func (w writer) Owners() string { return list(w.owners()) }

// NotPart reports in CEL whether the object of a request queues by itself: nothing controls it that
// could queue with all that it makes, or Muster has found that to be in no queue. A request that changes
// what Muster found is judged by how that was.
func (w writer) NotPart() string {
	return w.notControlled("object",
		"o.uid != (oldObject == null ? object : oldObject).metadata.?annotations[?'muster.dev/alone'].orValue('')")
}

// IsPart reports in CEL whether the object of an update was none that queues by itself. Muster has found only those
// to do so that name a queue; an operator may have copied its annotation from what it made them of.
func (w writer) IsPart() string {
	return "!(" + w.notControlled("oldObject", "(oldObject.metadata.?labels[?'"+workload.QueueLabel+"'].orValue('') == '' ||\n        "+
		"o.uid != oldObject.metadata.?annotations[?'muster.dev/alone'].orValue(''))") + ")"
}

// notControlled reports in CEL whether no controller of an object is of a kind that queues as a whole and meets the condition.
func (w writer) notControlled(object, condition string) string {
	return "!has(" + object + ".metadata.ownerReferences) || !" + object + `.metadata.ownerReferences.exists(o, has(o.controller) && o.controller &&
        o.apiVersion.split('/')[0] + '/' + o.kind in ` + w.Owners() + ` &&
        ` + condition + ")"
}

// Resource is the plural of an owner in CEL.
func (w writer) Resource() string {
	plurals := map[string]string{}
	for _, k := range w.kinds {
		if usual := strings.ToLower(k.Kind) + "s"; k.Resource != usual {
			plurals[k.id()] = k.Resource
		}
	}
	out := "variables.owner.kind.lowerAscii() + 's'"
	for _, id := range slices.Sorted(maps.Keys(plurals)) {
		out = fmt.Sprintf("variables.group + '/' + variables.owner.kind == '%s' ? '%s' : %s", id, plurals[id], out)
	}
	return out
}

// SameTemplates reports in CEL whether what pods are made of is as it was.
func (w writer) SameTemplates() string {
	return w.byKind(func(k *Kind) string {
		var same []string
		for _, p := range k.templates() {
			same = append(same, p.optional("dyn(object)")+" == "+p.optional("dyn(oldObject)"))
		}
		out := strings.Join(same, " && ")
		if k.Elastic {
			return "(variables.elastic ? " + k.sameButCounts() + " : " + out + ")"
		}
		return out
	}, "true")
}

// Requeues returns CEL that reports whether an update changes the pods of a running object, so that the object queues again with
// its new pods. The fields that a start adds are ignored: a user's manifest without them changes nothing.
func (w writer) Requeues() string {
	return w.byKind(func(k *Kind) string {
		if !k.Requeues {
			return "false"
		}
		return "(" + w.runsHere(k) + " && !(" + k.samePods() + "))"
	}, "false")
}

// runsHere returns CEL that reports whether the updated object is queued and runs in this cluster, and was not started by an
// administrator.
func (w writer) runsHere(k *Kind) string {
	out := "!" + w.inParentheses(fmt.Sprintf("%s.orValue(null) == %s", k.suspend.optional("dyn(oldObject)"), literal(k.Stanza.Suspend.Held))) +
		" && oldObject.metadata.?annotations[?'" + jobs.BreakGlassAnnotation + "'].orValue('') == ''"
	if k.managedBy != nil {
		out += fmt.Sprintf(" && %s.orValue('') != '%s'", k.managedBy.optional("dyn(oldObject)"), kueue.MultiKueueControllerName)
	}
	return out
}

// injected lists the fields of pod specs that a start adds to.
var injected = []string{"nodeSelector", "tolerations", "schedulingGates"}

// samePods returns CEL that reports whether the pods of an object are unchanged, apart from what a start adds. An elastic object
// may change its number of pods.
func (k *Kind) samePods() string {
	at := func(p pointer, object, otherwise string) string {
		return p.optional("dyn("+object+")") + ".orValue(" + otherwise + ")"
	}
	var specs, rest []string
	parts := map[string][]string{} // of an object that holds pod sets, the fields that are compared apart
	for i := range k.podSets {
		p := &k.podSets[i]
		holder, spec := slices.Concat(p.path, p.each), append(slices.Clone(p.template), "spec")
		if len(holder) > 2 {
			root := strings.Join(holder[:2], "/")
			parts[root] = append(parts[root], holder[2])
		}
		if p.each == nil {
			whole := slices.Concat(holder, spec)
			specs = append(specs, sameBut(at(whole, "object", "{}"), at(whole, "oldObject", "{}"), injected))
			rest = append(rest, sameBut(at(holder, "object", "{}"), at(holder, "oldObject", "{}"), p.template[:1]))
			continue
		}
		all, old := at(holder, "object", "[]"), at(holder, "oldObject", "[]")
		each := func(same string) string {
			return fmt.Sprintf("%s.size() == %s.size() && %s.all(x, %s.exists(y, [y].map(self, %s) == [x].map(self, %s) && %s))", all, old, all, old,
				p.name.text, p.name.text, same)
		}
		specs = append(specs, each(sameBut(at(spec, "x", "{}"), at(spec, "y", "{}"), injected)))
		rest = append(rest, each(sameBut("x", "y", p.template[:1])))
	}
	for _, root := range slices.Sorted(maps.Keys(parts)) {
		holder, apart := pointer(strings.Split(root, "/")), parts[root]
		if len(k.suspend) > 2 && slices.Equal(k.suspend[:2], holder) {
			apart = append(apart, k.suspend[2])
		}
		rest = append(rest, sameBut(at(holder, "object", "{}"), at(holder, "oldObject", "{}"), apart))
	}
	out := strings.Join(specs, " && ")
	if k.Elastic {
		return out + " && (oldObject.metadata.?annotations[?'" + workload.ElasticAnnotation + "'].orValue('') == 'true' || " +
			strings.Join(rest, " && ") + ")"
	}
	return out + " && " + strings.Join(rest, " && ")
}

// sameBut returns CEL that reports whether two objects are equal except for some fields.
func sameBut(a, b string, fields []string) string {
	but := list(fields)
	return fmt.Sprintf("%s.all(k, k in %s || k in %s && %s[k] == %s[k]) && %s.all(k, k in %s || k in %s)", a, but, b, a, b, b, but, a)
}

// Orphans reports in CEL whether a deletion leaves what the object has made.
func (writer) Orphans() string {
	return "request.?options.?propagationPolicy.orValue('') == 'Orphan' || request.?options.?orphanDependents.orValue(false) ||\n        " +
		"!request.?options.?propagationPolicy.hasValue() && has(oldObject.metadata.finalizers) && 'orphan' in oldObject.metadata.finalizers"
}

// Marked reports in CEL whether an object had pod templates of a start, so that its pods are counted in the queue of its owner.
func (w writer) Marked() string {
	const mark = "?metadata.?labels[?'" + workload.PodSetLabel + "'].hasValue()"
	return w.byKind(func(k *Kind) string {
		var out []string
		for i := range k.podSets {
			p := &k.podSets[i]
			whole := slices.Concat(p.path, p.template)
			switch {
			case p.each != nil:
				out = append(out, fmt.Sprintf("%s.exists(self, %s.%s)", p.elements("oldObject"), p.template.optional("self"), mark))
			default:
				out = append(out, whole.optional("dyn(oldObject)")+"."+mark)
			}
		}
		if len(out) == 0 { // its templates are elsewhere, or are none; it has a record of its start
			return "dyn(oldObject).?metadata.?annotations[?'" + jobs.StartedAnnotation + "'].hasValue()"
		}
		return "(" + strings.Join(out, " || ") + ")"
	}, "oldObject.spec.template."+mark)
}

// Annotations returns in CEL those of the pod templates of an object, a map for each.
func (w writer) Annotations(object string) string {
	const of = ".?metadata.?annotations.orValue({})"
	return w.byKind(func(k *Kind) string {
		var out []string
		for i := range k.podSets {
			p := &k.podSets[i]
			if p.each != nil {
				out = append(out, fmt.Sprintf("%s.map(self, %s%s)", p.elements(object), p.template.optional("self"), of))
				continue
			}
			out = append(out, "["+slices.Concat(p.path, p.template).optional("dyn("+object+")")+of+"]")
		}
		if len(out) == 0 { // its templates are elsewhere, or are none
			return "[]"
		}
		return strings.Join(out, " + ")
	}, "[dyn("+object+").spec.template"+of+"]")
}

// elements are those of the list or map in an object, as a list in CEL.
func (p *podSet) elements(object string) string {
	all := p.each.optional("dyn(" + object + ")")
	return fmt.Sprintf("(type(%s.orValue([])) == list ? %s.orValue([]) : %s.orValue({}).map(k, %s.orValue({})[k]))", all, all, all, all)
}

// SameParts reports in CEL whether the pods of an object that another object controls are unchanged. The number of pods that are created
// gated may change.
func (w writer) SameParts() string {
	same := func(p pointer) string { return p.optional("dyn(object)") + " == " + p.optional("dyn(oldObject)") }
	return w.byKind(func(k *Kind) string {
		var all []string
		for _, p := range k.templates() {
			all = append(all, same(p))
		}
		if len(all) == 0 {
			return same(pointer{"spec"})
		}
		if out := strings.Join(all, " && "); !k.Elastic || k.Scaled != nil {
			return "(" + out + ")"
		}
		return "(" + strings.Join(all, " && ") + " || " + k.sameButCounts() + ")"
	}, "("+same(pointer{"spec", "parallelism"})+" && "+same(pointer{"spec", "completions"})+" && "+same(pointer{"spec", "template"})+")")
}

// sameButCounts reports in CEL whether the pods of an elastic object are as they were, however many
// it has. New ones have to come with their gate.
func (k *Kind) sameButCounts() string {
	const gated = "t.?spec.?schedulingGates.orValue([]).exists(g, g.name == '" + kueue.ElasticJobSchedulingGate + "')"
	var out []string
	for i := range k.podSets {
		p := &k.podSets[i]
		if p.each == nil {
			whole := slices.Concat(p.path, p.template)
			out = append(out, whole.optional("dyn(object)")+" == "+whole.optional("dyn(oldObject)"))
			continue
		}
		of := func(object string) string {
			return fmt.Sprintf("%s.orValue([]).map(self, [dyn(%s), %s.orValue({})])", p.each.optional("dyn("+object+")"), p.name.text,
				p.template.optional("self"))
		}
		out = append(out, of("object")+" == "+of("oldObject"),
			fmt.Sprintf("%s.orValue([]).map(self, %s.orValue({})).all(t, %s)", p.each.optional("dyn(object)"), p.template.optional("self"), gated))
	}
	return strings.Join(out, " && ")
}

// templates returns the fields of an object that have its pod templates, or lists of them.
func (k *Kind) templates() (out []pointer) {
	for i := range k.podSets {
		p := &k.podSets[i]
		whole := slices.Concat(p.path, p.each, p.template)
		whole = whole[:min(2, len(whole))]
		if !slices.ContainsFunc(out, func(o pointer) bool { return slices.Equal(o, whole) }) {
			out = append(out, whole)
		}
	}
	return append(out, k.immutable...)
}

// Rules are the resource rules of all kinds.
func (w writer) Rules(operations string) string {
	return rule("batch", "v1", operations, []string{"jobs"}) + rules(w.kinds, operations)
}

// PodRule is the resource rule of pods.
func (writer) PodRule(operations string) string { return rule("", "v1", operations, []string{"pods"}) }

// ServingRules are those of what queues with its pods and cannot be suspended. Each pod of a Deployment queues by itself.
func (writer) ServingRules(operations string) string {
	return rule("apps", "v1", operations, []string{"statefulsets"}) +
		rule("leaderworkerset.x-k8s.io", "v1", operations, []string{"leaderworkersets"})
}

// DefaultRules are those of the kinds that have defaults.
func (w writer) DefaultRules() string {
	with := slices.DeleteFunc(slices.Clone(w.kinds), func(k *Kind) bool { return len(k.defaults) == 0 })
	return rules(with, `["CREATE"]`)
}

// DelegateRules are those of batch/v1 Jobs and the kinds that have managedBy.
func (w writer) DelegateRules() string {
	with := slices.DeleteFunc(slices.Clone(w.kinds), func(k *Kind) bool { return k.managedBy == nil })
	const create = `["CREATE"]`
	return rule("batch", "v1", create, []string{"jobs"}) + rules(with, create)
}

// ScaleRules are those of the subresource scale of the kinds.
func (w writer) ScaleRules() string {
	var out []*Kind
	for _, k := range w.kinds {
		scaled := *k
		scaled.Resource += "/scale"
		out = append(out, &scaled)
	}
	return rules(out, `["UPDATE"]`)
}

// Refusals are validations that say which objects cannot be queued. An object that could not be queued before may change.
func (w writer) Refusals() string {
	var out strings.Builder
	for _, k := range w.kinds {
		for _, r := range k.admitted() {
			of := func(object string) string { return fmt.Sprintf("[dyn(%s)].exists(self, %s)", object, r.is.text) }
			expression := fmt.Sprintf("request.kind.group + '/' + request.kind.kind != '%s' || !%s || !variables.joins && %s", k.id(), of("object"),
				of("oldObject"))
			fmt.Fprintf(&out, "    - expression: %s\n      message: %s\n      reason: Forbidden\n", quoted(expression), quoted(r.message))
		}
	}
	return out.String()
}

// admitted are the refusals that kube-apiserver can judge.
func (k *Kind) admitted() []refusal {
	return slices.DeleteFunc(slices.Clone(k.refusals), func(r refusal) bool {
		_, issues := admission.Compile(r.is.text)
		return issues.Err() != nil
	})
}

// quoted returns a text as YAML.
func quoted(text string) string {
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // a text is never refused
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// rules returns one rule for the kinds of each version of an API.
func rules(kinds []*Kind, operations string) string {
	resources := map[[2]string][]string{}
	for _, k := range kinds {
		api := [2]string{k.Group, k.Version}
		resources[api] = append(resources[api], k.Resource)
	}
	var out strings.Builder
	for _, api := range slices.SortedFunc(maps.Keys(resources), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		out.WriteString(rule(api[0], api[1], operations, resources[api]))
	}
	return out.String()
}

func rule(group, version, operations string, resources []string) string {
	return fmt.Sprintf("      - apiGroups: [%q]\n        apiVersions: [%q]\n        operations: %s\n        resources: [%s]\n",
		group, version, operations, `"`+strings.Join(resources, `", "`)+`"`)
}

package kinds

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// finder finds the pod sets of a kind whose objects have no pod templates.
type finder struct {
	find func(map[string]any) ([]found, []string)
	// places are the fields that a start writes, and alsoSame is CEL of what an update by Muster leaves as it is in them.
	places   []pointer
	alsoSame string
}

// finders are those of kinds that Muster supports.
var finders = map[string]finder{}

// rescaled finds the pod sets of kinds that are scaled in another object.
var rescaled func(*Kind, map[string]any) ([]found, []string)

func init() {
	rescaled = (*Kind).rescaled
	finders["workload.codeflare.dev/AppWrapper"] = finder{find: findAppWrapper,
		places: []pointer{{"spec", "components", every, "podSetInfos"}}}
	finders["sparkoperator.k8s.io/SparkApplication"] = finder{find: findSpark, places: sparkPlaces()}
	finders["trainer.kubeflow.org/TrainJob"] = finder{findTrainJob, []pointer{{"spec", "runtimePatches"}}, sameRuntimePatches}
}

// compiler compiles a stanza and collects all that is wrong with it.
type compiler struct{ wrong field.ErrorList }

func (c *compiler) refuse(at *field.Path, value any, format string, args ...any) {
	c.wrong = append(c.wrong, field.Invalid(at, value, fmt.Sprintf(format, args...)))
}

// Compile returns the kind of a stanza, or all that is wrong with it.
func Compile(s Stanza, path *field.Path) (*Kind, field.ErrorList) {
	c := &compiler{}
	c.kind(path, &s.Group, &s.Version, &s.Kind, &s.Resource)
	k := &Kind{Stanza: s, podLabels: map[string]expression[string]{}}
	if k.finder = finders[k.id()]; k.find == nil {
		k.find = k.declared
		if len(s.PodSets) == 0 {
			c.wrong = append(c.wrong, field.Required(path.Child("podSets"), "say where the pod templates are"))
		}
	}
	for _, own := range []struct {
		field string
		value any
		set   bool
	}{{"elastic", s.Elastic, s.Elastic}, {"source", s.Source, s.Source != nil}, {"scaled", s.Scaled, s.Scaled != nil}} {
		if own.set && s.Framework == "" {
			c.refuse(path.Child(own.field), own.value, "it is for kinds that Muster knows by itself; leave it out")
		}
	}
	if x := s.Scaled; x != nil {
		k.find = func(object map[string]any) ([]found, []string) { return rescaled(k, object) }
		k.scaled = needed[string](c, path.Child("scaled", "name"), x.Name)
	}
	k.suspend = c.plain(path.Child("suspend", "path"), s.Suspend.Path)
	c.values(path.Child("suspend"), &k.Stanza.Suspend)
	for i, p := range s.Immutable {
		k.immutable = append(k.immutable, c.required(path.Child("immutable").Index(i), p))
	}
	for i := range s.PodSets {
		k.podSets = append(k.podSets, c.podSet(path.Child("podSets").Index(i), &s.PodSets[i]))
	}
	if m := s.ManagedBy; m != nil {
		k.managedBy = c.plain(path.Child("managedBy", "path"), m.Path)
		if m.TTL != "" {
			k.ttl = c.plain(path.Child("managedBy", "ttl"), m.TTL)
		}
		for i, p := range m.Forwards {
			k.forwards = append(k.forwards, c.plain(path.Child("managedBy", "forwards").Index(i), p))
		}
		if m.Own == "" {
			c.wrong = append(c.wrong, field.Required(path.Child("managedBy", "own"), "give the value that names the kind's own controller"))
		}
	}
	for i, r := range s.Refuse {
		at := path.Child("refuse").Index(i)
		if r.Message == "" {
			c.wrong = append(c.wrong, field.Required(at.Child("message"), "say what is wrong and what to do about it"))
		}
		k.refusals = append(k.refusals, refusal{needed[bool](c, at.Child("if"), r.If), r.Message})
	}
	for i, d := range s.Defaults {
		k.defaults = append(k.defaults, defaulted{c.required(path.Child("defaults").Index(i).Child("path"), d.Path), literal(d.Value)})
	}
	k.succeeded = compiled[bool](c, path.Child("succeeded"), s.Succeeded)
	k.failed = compiled[bool](c, path.Child("failed"), s.Failed)
	k.stopped = compiled[bool](c, path.Child("stopped"), s.Stopped)
	k.message = compiled[string](c, path.Child("message"), s.Message)
	k.priorityClass = compiled[string](c, path.Child("priorityClassName"), s.PriorityClassName)
	for label, text := range s.PodLabels {
		k.podLabels[label] = needed[string](c, path.Child("podLabels").Key(label), text)
	}
	for i := range k.Stale {
		x, at := &k.Stale[i], path.Child("stale").Index(i)
		c.kind(at, &x.Group, &x.Version, &x.Kind, &x.Resource)
		if x.Label == "" {
			c.wrong = append(c.wrong, field.Required(at.Child("label"), "name the label whose value is the name of the object"))
		}
	}
	return k, c.wrong
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	version    = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	kindName   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
)

// kind checks an API type, and fills in its resource.
func (c *compiler) kind(path *field.Path, group, v, kind, resource *string) {
	if len(validation.IsDNS1123Subdomain(*group)) > 0 {
		c.refuse(path.Child("group"), *group, "it must be an API group, like example.com")
	}
	if !version.MatchString(*v) {
		c.refuse(path.Child("version"), *v, "it must be a version of the API, like v1 or v1alpha2")
	}
	if !kindName.MatchString(*kind) {
		c.refuse(path.Child("kind"), *kind, "it must be a kind, like TrainRun")
	}
	if *resource == "" {
		*resource = strings.ToLower(*kind) + "s"
	}
	if len(validation.IsDNS1035Label(*resource)) > 0 {
		c.refuse(path.Child("resource"), *resource, "it must be the plural in lower case that URLs have, like trainruns")
	}
}

// values fills in what the field of a held and of a running object is.
func (c *compiler) values(path *field.Path, s *Suspend) {
	if s.Held == nil && s.Running == nil {
		s.Held, s.Running = true, false
	}
	if s.Held == nil {
		c.wrong = append(c.wrong, field.Required(path.Child("held"), "say which value of the field keeps an object from having pods"))
		return
	}
	var err error
	if s.Held, err = plain(s.Held); err != nil {
		c.refuse(path.Child("held"), s.Held, "%v", err)
	}
	if s.Running, err = plain(s.Running); err != nil {
		c.refuse(path.Child("running"), s.Running, "%v", err)
	}
}

// podSet compiles one stanza of pod sets.
func (c *compiler) podSet(path *field.Path, s *PodSet) (out podSet) {
	if s.Path != "" && s.Each != "" {
		c.refuse(path.Child("each"), s.Each, "there is a path, too; remove one")
	}
	out.path = c.pointer(path.Child("path"), s.Path)
	out.each = c.pointer(path.Child("each"), s.Each)
	out.template = c.required(path.Child("template"), s.Template)
	out.is = compiled[bool](c, path.Child("if"), s.If)
	out.name = needed[string](c, path.Child("name"), s.Name)
	out.count = needed[int64](c, path.Child("count"), s.Count)
	out.final = compiled[int64](c, path.Child("final"), s.Final)
	out.ready = compiled[[]string](c, path.Child("afterReady"), s.AfterReady)
	out.complete = compiled[[]string](c, path.Child("afterComplete"), s.AfterComplete)
	out.absent = compiled[map[string]any](c, path.Child("absent"), s.Absent)
	if out.indexLabel = s.IndexLabel; out.indexLabel != "" {
		c.label(path.Child("indexLabel"), out.indexLabel)
	}
	if g := s.SubGroups; g != nil {
		if out.indexLabel == "" {
			c.wrong = append(c.wrong, field.Required(path.Child("indexLabel"), "name the label that numbers the pods in each of the subGroups"))
		}
		out.subGroupLabel = g.IndexLabel
		c.label(path.Child("subGroups", "indexLabel"), g.IndexLabel)
		out.subGroups = needed[int64](c, path.Child("subGroups", "count"), g.Count)
	}
	for i, h := range s.Hidden {
		at := path.Child("hidden").Index(i)
		x := hidden{is: compiled[bool](c, at.Child("if"), h.If), init: h.Init, onlyRequested: h.OnlyRequested}
		x.container = corev1.Container{Name: h.Name, Image: h.Name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
		for _, name := range slices.Sorted(maps.Keys(h.Requests)) {
			quantity, err := resource.ParseQuantity(h.Requests[name])
			if err != nil {
				c.refuse(at.Child("requests").Key(name), h.Requests[name], "it must be a quantity, like 500m or 1Gi")
			}
			x.container.Resources.Requests[corev1.ResourceName(name)] = quantity
		}
		out.hidden = append(out.hidden, x)
	}
	return out
}

// label checks the key of a label.
func (c *compiler) label(path *field.Path, key string) {
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		c.refuse(path, key, "it must be the key of a label: %s", wrong[0])
	}
}

func (c *compiler) pointer(path *field.Path, text string) pointer {
	p, err := parsePointer(text)
	if err != nil {
		c.refuse(path, text, "%v", err)
	}
	return p
}

func (c *compiler) required(path *field.Path, text string) pointer {
	if text == "" {
		c.wrong = append(c.wrong, field.Required(path, "give a JSON pointer, like /spec/suspend"))
	}
	return c.pointer(path, text)
}

// plain is a pointer that admission policies read, too.
func (c *compiler) plain(path *field.Path, text string) pointer {
	out := c.required(path, text)
	for _, part := range out {
		if !identifier.MatchString(part) {
			c.refuse(path, text, "it must lead through objects by names of letters and digits, since admission policies read it")
		}
	}
	return out
}

func compiled[T any](c *compiler, path *field.Path, text string) expression[T] {
	out, err := compile[T](text)
	if err != nil {
		c.refuse(path, text, "%v", err)
	}
	return out
}

func needed[T any](c *compiler, path *field.Path, text string) expression[T] {
	if text == "" {
		c.wrong = append(c.wrong, field.Required(path, "give an expression in CEL"))
	}
	return compiled[T](c, path, text)
}

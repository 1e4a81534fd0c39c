package aws

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// params are the parameters of a call. Each must be read: a parameter that was not read is unsupported, and the call fails.
type params struct {
	values url.Values
	read   map[string]bool
	// member stands before the number of a list's element: nothing in EC2, "member."
	// in Auto Scaling.
	member string
}

func newParams(values url.Values) *params {
	p := &params{values: values, read: map[string]bool{"Action": true, "Version": true}}
	if values.Get("Version") == autoScalingVersion {
		p.member = "member."
	}
	return p
}

func (p *params) text(key string) string {
	p.read[key] = true
	return p.values.Get(key)
}

func (p *params) has(key string) bool { return p.values.Has(key) }

func (p *params) number(key string) int {
	n, err := strconv.Atoi(cmp.Or(p.text(key), "0"))
	if err != nil {
		panic(invalid("%s is %q: it must be a number", key, p.values.Get(key)))
	}
	return n
}

func (p *params) is(key string) bool { return p.text(key) == "true" }

// each returns the prefixes of a list's elements, in order.
func (p *params) each(key string) (out []string) {
	for i := 1; ; i++ {
		prefix := fmt.Sprintf("%s.%s%d", key, p.member, i)
		if !p.has(prefix) && !slices.ContainsFunc(keys(p.values), func(k string) bool { return strings.HasPrefix(k, prefix+".") }) {
			return out
		}
		out = append(out, prefix)
	}
}

func keys(v url.Values) (out []string) {
	for k := range v {
		out = append(out, k)
	}
	return out
}

// texts is a list of strings.
func (p *params) texts(key string) (out []string) {
	for _, prefix := range p.each(key) {
		out = append(out, p.text(prefix))
	}
	return out
}

// tags by the type of what they are for.
func (p *params) tagSpecifications(key string) map[string]map[string]string {
	out := map[string]map[string]string{}
	for _, spec := range p.each(key) {
		out[p.text(spec+".ResourceType")] = p.tags(spec + ".Tag")
	}
	return out
}

func (p *params) tags(key string) map[string]string {
	out := map[string]string{}
	for _, tag := range p.each(key) {
		if out[p.text(tag+".Key")] = p.text(tag + ".Value"); len(p.text(tag+".Value")) > 256 {
			panic(invalid("Tag value exceeds the maximum length of 256 characters"))
		}
	}
	return out
}

// filters returns the filters of a list. A result matches all of them. A filter whose name is not in known is refused.
func (p *params) filters(key, values string, known ...string) filters {
	out := filters{}
	for _, f := range p.each(key) {
		name := p.text(f + ".Name")
		if !slices.Contains(known, name) && (!strings.HasPrefix(name, "tag:") || !slices.Contains(known, "tag:*")) {
			panic(invalid("the filter '%s' is invalid", name))
		}
		out[name] = append(out[name], p.texts(f+"."+values)...)
		if len(out[name]) > 200 {
			panic(&cloudsim.Error{Status: 400, Code: "FilterLimitExceeded", Message: "a filter may have 200 values"})
		}
	}
	return out
}

// filters are values by the name of the filter.
type filters map[string][]string

// wildcards are the filters of EC2: * matches any characters, ? matches one, and \ escapes one of these. Auto Scaling and the price list
// have no wildcards.
type wildcards filters

// match reports whether each filter has one of the values. Filters of tags are tag:<key> and tag-key.
func (f filters) match(attributes, tags map[string]string) bool {
	return f.matchBy(func(value, have string) bool { return value == have }, attributes, tags)
}

// match is that of filters, with wildcards.
func (f wildcards) match(attributes, tags map[string]string) bool {
	return filters(f).matchBy(matchWildcards, attributes, tags)
}

func (f filters) matchBy(equal func(value, have string) bool, attributes, tags map[string]string) bool {
	for name, values := range f {
		have := []string{attributes[name]}
		if key, ok := strings.CutPrefix(name, "tag:"); ok {
			have = nil
			if value, tagged := tags[key]; tagged {
				have = []string{value}
			}
		} else if name == "tag-key" {
			have = slices.Collect(maps.Keys(tags))
		}
		if !slices.ContainsFunc(values, func(value string) bool {
			return slices.ContainsFunc(have, func(h string) bool { return equal(value, h) })
		}) {
			return false
		}
	}
	return true
}

var wildcard = regexp.MustCompile(`\\[*?\\]|[*?]|[^*?\\]+|\\`)

func matchWildcards(pattern, s string) bool {
	if !strings.ContainsAny(pattern, `*?\`) {
		return pattern == s
	}
	expression := wildcard.ReplaceAllStringFunc(pattern, func(part string) string {
		switch part {
		case "*":
			return "(?s:.*)"
		case "?":
			return "(?s:.)"
		}
		return regexp.QuoteMeta(strings.TrimPrefix(part, `\`))
	})
	return regexp.MustCompile("^" + expression + "$").MatchString(s)
}

// unread returns a parameter that was not read.
func (p *params) unread() string {
	left := slices.DeleteFunc(keys(p.values), func(k string) bool { return p.read[k] })
	if len(left) == 0 {
		return ""
	}
	return slices.Min(left)
}

func invalid(format string, args ...any) *cloudsim.Error {
	return &cloudsim.Error{Status: 400, Code: "InvalidParameterValue", Message: fmt.Sprintf(format, args...)}
}

package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TemporaryAnnotation of a ClusterQueue has its Temporary quotas, each as FLAVOR RESOURCE FORMER SET UNTIL, separated by commas. The policy
// muster-rights-queues reads it, and lets Muster restore what an entry names, and remove entries.
const TemporaryAnnotation = "muster.dev/temporary-quota"

// separator is what the policy splits the annotation at.
const separator = ", "

// Temporary is a nominalQuota that holds until a time.
//
//	          ┌─ until Until, while the quota is Set ─┐
//	          ▼                                       │
//	set ──▶ kept ──┬─ Until is reached ──▶ restored: the quota is Former
//	               └─ the quota is not Set ──▶ edited: the quota stays as it is
type Temporary struct {
	FlavorResource

	Former, Set resource.Quantity
	Until       time.Time
}

// Expiry is what is to be done about the Temporary quotas of a ClusterQueue.
type Expiry struct {
	Restored, Edited []Temporary
	// Unreadable entries were written by hand, and are removed.
	Unreadable []string
	// Patch of the ClusterQueue; nil leaves it as it is.
	Patch []byte
	// Next is when the next one ends; zero is never.
	Next time.Time
}

// Nominal returns the nominalQuota in the spec of a ClusterQueue. The error names those that there are.
func Nominal(cq *kueue.ClusterQueue, of FlavorResource) (*resource.Quantity, error) {
	_, found, err := find(cq, of)
	return found, err
}

// find also returns the path of the nominalQuota in the object.
func find(cq *kueue.ClusterQueue, of FlavorResource) (path string, _ *resource.Quantity, _ error) {
	var all []string
	for i := range cq.Spec.ResourceGroups {
		for j := range cq.Spec.ResourceGroups[i].Flavors {
			f := &cq.Spec.ResourceGroups[i].Flavors[j]
			for k := range f.Resources {
				r := &f.Resources[k]
				if f.Name == of.Flavor && r.Name == of.Resource {
					return fmt.Sprintf("/spec/resourceGroups/%d/flavors/%d/resources/%d/nominalQuota", i, j, k), &r.NominalQuota, nil
				}
				all = append(all, fmt.Sprintf("%s/%s", f.Name, r.Name))
			}
		}
	}
	return "", nil, fmt.Errorf("ClusterQueue %s has no nominalQuota of %s in flavor %s: use one of %s", cq.Name, of.Resource, of.Flavor,
		strings.Join(all, ", "))
}

// TemporaryOf returns the Temporary quotas of a ClusterQueue that nothing has edited.
func TemporaryOf(cq *kueue.ClusterQueue) []Temporary {
	all, _ := recorded(cq)
	return slices.DeleteFunc(all, func(t Temporary) bool { return !t.holds(cq) })
}

// TemporaryFor returns that of a flavor and resource; nil without.
func TemporaryFor(cq *kueue.ClusterQueue, of FlavorResource) *Temporary {
	for _, t := range TemporaryOf(cq) {
		if t.FlavorResource == of {
			return &t
		}
	}
	return nil
}

// holds reports whether the quota is still what was set.
func (t *Temporary) holds(cq *kueue.ClusterQueue) bool {
	now, err := Nominal(cq, t.FlavorResource)
	return err == nil && now.Cmp(t.Set) == 0
}

func (t *Temporary) encode() string {
	return fmt.Sprintf("%s %s %s %s %s", t.Flavor, t.Resource, t.Former.String(), t.Set.String(), t.Until.UTC().Format(time.RFC3339))
}

// recorded reads the annotation.
func recorded(cq *kueue.ClusterQueue) (out []Temporary, unreadable []string) {
	for entry := range strings.SplitSeq(cq.Annotations[TemporaryAnnotation], ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		if t, ok := decode(strings.Fields(entry)); ok {
			out = append(out, t)
		} else {
			unreadable = append(unreadable, entry)
		}
	}
	return out, unreadable
}

func decode(words []string) (t Temporary, ok bool) {
	if len(words) != 5 {
		return t, false
	}
	t.Flavor, t.Resource = kueue.ResourceFlavorReference(words[0]), corev1.ResourceName(words[1])
	var errs [3]error
	t.Former, errs[0] = resource.ParseQuantity(words[2])
	t.Set, errs[1] = resource.ParseQuantity(words[3])
	t.Until, errs[2] = time.Parse(time.RFC3339, words[4])
	return t, errs == [3]error{} && t.Former.Sign() >= 0
}

// Expire decides about the Temporary quotas of a ClusterQueue.
func Expire(cq *kueue.ClusterQueue, now time.Time) Expiry {
	all, unreadable := recorded(cq)
	out := Expiry{Unreadable: unreadable}
	p := patch{}
	var left []Temporary
	for _, t := range all {
		path, _, _ := find(cq, t.FlavorResource)
		switch {
		case !t.holds(cq):
			out.Edited = append(out.Edited, t)
		case now.Before(t.Until):
			left = append(left, t)
			if out.Next.IsZero() || t.Until.Before(out.Next) {
				out.Next = t.Until
			}
		default:
			out.Restored = append(out.Restored, t)
			p.replace(path, t.Former.String())
		}
	}
	if len(left) < len(all)+len(unreadable) {
		p.record(cq, left)
		out.Patch = p.encode(cq)
	}
	return out
}

// SetNominal returns the patch of a ClusterQueue that sets a nominalQuota until a time, or for good if that is zero, and the Temporary
// quota that follows from it. A Temporary quota that is set again keeps its Former; one that is set to its Former ends.
func SetNominal(cq *kueue.ClusterQueue, of FlavorResource, nominal resource.Quantity, until time.Time) (Temporary, []byte, error) {
	path, was, err := find(cq, of)
	if err != nil {
		return Temporary{}, nil, err
	}
	set := Temporary{FlavorResource: of, Former: *was, Set: nominal, Until: until}
	if before := TemporaryFor(cq, of); before != nil {
		set.Former = before.Former
	}
	others, _ := recorded(cq)
	others = slices.DeleteFunc(others, func(t Temporary) bool { return t.FlavorResource == of })
	p := patch{}
	p.replace(path, nominal.String())
	if until.IsZero() || set.Former.Cmp(nominal) == 0 {
		set.Until = time.Time{}
		p.record(cq, others)
	} else {
		p.record(cq, append(others, set))
	}
	return set, p.encode(cq), nil
}

// patch is a JSON Patch. It names the single fields that it changes, so that quotas of others keep the form in which they were written.
type patch []map[string]any

func (p *patch) replace(path, value string) {
	*p = append(*p, map[string]any{"op": "replace", "path": path, "value": value})
}

// record replaces the annotation.
func (p *patch) record(cq *kueue.ClusterQueue, all []Temporary) {
	entries := make([]string, len(all))
	for i := range all {
		entries[i] = all[i].encode()
	}
	path := "/metadata/annotations/" + strings.ReplaceAll(TemporaryAnnotation, "/", "~1")
	_, has := cq.Annotations[TemporaryAnnotation]
	switch {
	case len(all) == 0 && has:
		*p = append(*p, map[string]any{"op": "remove", "path": path})
	case len(all) == 0:
	case cq.Annotations == nil:
		*p = append(*p, map[string]any{"op": "add", "path": "/metadata/annotations",
			"value": map[string]string{TemporaryAnnotation: strings.Join(entries, separator)}})
	default:
		*p = append(*p, map[string]any{"op": "add", "path": path, "value": strings.Join(entries, separator)})
	}
}

// encode writes the patch for the version that it was made for: the API server answers a conflict for another.
func (p *patch) encode(cq *kueue.ClusterQueue) []byte {
	p.replace("/metadata/resourceVersion", cq.ResourceVersion)
	out, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("a patch cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return out
}

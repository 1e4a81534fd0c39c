package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Aggregated is a list of all zones and regions of a project.
type Aggregated[T any] struct {
	// Items by their zone or region.
	Items map[string][]T
	// Failed are the zones and regions that could not be listed, and why.
	Failed map[string]error
}

// aggregatedPage is a page of such a list, whose scopes are of type S.
type aggregatedPage[S scoped] interface {
	paged
	GetItems() map[string]S
	GetUnreachables() []string
}

type scoped interface{ GetWarning() *computepb.Warning }

// unreachable is the code of the warning of a scope that could not be listed.
const unreachable = "UNREACHABLE"

// aggregated calls for such a list. A zone that is away does not fail the list of the others.
func aggregated[P aggregatedPage[S], S scoped, T any](ctx context.Context, c *Client, r *request, newPage func() P,
	items func(S) []T) (Aggregated[T], error) {
	out := Aggregated[T]{Items: map[string][]T{}, Failed: map[string]error{}}
	found, err := pages(ctx, c, r.with("returnPartialSuccess", "true"), newPage)
	if err != nil {
		return out, err
	}
	fail := func(scope string) {
		out.Failed[Base(scope)] = cloudprovider.Inconclusive(caused(v1alpha1.Outage, unreachable, scope+" is unreachable", false))
	}
	for _, page := range found {
		for _, link := range page.GetUnreachables() {
			fail(scopeOf(link))
		}
		for scope, s := range page.GetItems() {
			if s.GetWarning().GetCode() == unreachable {
				fail(scope)
			}
			out.Items[Base(scope)] = append(out.Items[Base(scope)], items(s)...)
		}
	}
	for scope := range out.Failed {
		delete(out.Items, scope) // what was listed of it may be a part
	}
	return out, nil
}

// scopeOf a link of a zone or region, or of something in it: zones/… or regions/….
func scopeOf(link string) string {
	for _, kind := range []string{"zones/", "regions/"} {
		if _, rest, found := strings.Cut(link, kind); found {
			name, _, _ := strings.Cut(rest, "/")
			return kind + name
		}
	}
	return link
}

// Scopes are those that were listed, in order.
func (a Aggregated[T]) Scopes() []string { return slices.Sorted(maps.Keys(a.Items)) }

// All are the items of all scopes.
func (a Aggregated[T]) All() (out []T) {
	for _, scope := range a.Scopes() {
		out = append(out, a.Items[scope]...)
	}
	return out
}

package gcp

import (
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

type affinityJSON struct {
	ConsumeReservationType string   `json:"consumeReservationType"`
	Key                    string   `json:"key"`
	Values                 []string `json:"values"`
}

// blockOf a reservation in a zone; nil where it has none of the name.
func (f *Front) blockOf(reservation, zone, name string) *ReservationBlock {
	r := f.reservation(reservation, zone)
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Blocks, func(b ReservationBlock) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Blocks[i]
}

// inUse is how many hosts of a sub-block have VMs, stopped ones included.
func (f *Front) inUse(zone, domain string) (n int) {
	all := f.instances(true)
	for _, v := range f.vms {
		if in := all[v.inWorld]; in != nil && v.zone == zone && in.Domain() == domain && in.Phase != cloudsim.Terminated {
			n++
		}
	}
	return n
}

func (f *Front) listBlocks(c *call) (any, *cloudsim.Error) {
	zone, name := c.PathValue("zone"), c.PathValue("reservation")
	r := f.reservation(name, zone)
	if r == nil {
		return nil, notFound("projects/" + f.config.Project + "/zones/" + zone + "/reservations/" + name)
	}
	cut, next, refused := page(f, c, r.Blocks)
	if refused != nil {
		return nil, refused
	}
	items := []any{}
	for _, b := range cut {
		items = append(items, map[string]any{
			"kind": "compute#reservationBlock", "name": b.Name, "reservationSubBlockCount": len(b.SubBlocks),
			"physicalTopology": map[string]any{"cluster": "c", "block": b.Name},
		})
	}
	return map[string]any{"kind": "compute#reservationBlocksListResponse", "items": items, "nextPageToken": next}, nil
}

func (f *Front) listSubBlocks(c *call) (any, *cloudsim.Error) {
	zone, reservation, name := c.PathValue("zone"), c.PathValue("reservation"), c.PathValue("block")
	b := f.blockOf(reservation, zone, name)
	if b == nil {
		return nil, notFound("projects/" + f.config.Project + "/zones/" + zone + "/reservations/" + reservation + "/reservationBlocks/" + name)
	}
	cut, next, refused := page(f, c, b.SubBlocks)
	if refused != nil {
		return nil, refused
	}
	items := []any{}
	for _, s := range cut {
		n := f.inUse(zone, s.Name)
		items = append(items, map[string]any{
			"kind": "compute#reservationSubBlock", "name": s.Name, "count": s.Hosts, "inUseCount": n, "inUseHostCount": n,
			"physicalTopology": map[string]any{"cluster": "c", "block": b.Name, "subBlock": s.Name},
			"healthInfo": map[string]any{
				"healthStatus":     map[bool]string{true: "DEGRADED", false: "HEALTHY"}[s.Degraded > 0],
				"healthyHostCount": s.Hosts - s.Degraded, "degradedHostCount": s.Degraded,
			},
		})
	}
	return map[string]any{"kind": "compute#reservationSubBlocksListResponse", "items": items, "nextPageToken": next}, nil
}

// consume has new VMs in the part of a reservation that the affinity of a call names.
func (f *Front) consume(m *machine, a *affinityJSON, zone string) *cloudsim.Error {
	const field = "resource.instanceProperties.reservationAffinity"
	if a == nil {
		return nil
	}
	if a.ConsumeReservationType != "SPECIFIC_RESERVATION" || a.Key != reservationKey || len(a.Values) != 1 {
		return invalid(field, strings.Join(a.Values, ","), "Only a specific reservation by its name is simulated.")
	}
	rest := strings.TrimPrefix(a.Values[0], "projects/"+f.config.Project+"/reservations/")
	name, rest, named := strings.Cut(rest, "/reservationBlocks/")
	if f.reservation(name, zone) == nil {
		return invalid(field, a.Values[0], "The reservation does not exist.")
	}
	if !named {
		return nil
	}
	blockName, sub, _ := strings.Cut(rest, "/reservationSubBlocks/")
	b := f.blockOf(name, zone, blockName)
	if b != nil {
		for _, s := range b.SubBlocks {
			if sub == "" || s.Name == sub {
				m.domains = append(m.domains, s.Name)
			}
		}
	}
	if len(m.domains) == 0 {
		return invalid(field, a.Values[0], "The block of the reservation does not exist.")
	}
	return nil
}

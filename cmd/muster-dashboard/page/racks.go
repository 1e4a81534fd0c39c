package page

import (
	"context"
	"net/http"

	"github.com/muster-dev/muster/cmd/view"
)

// racksView is the map of racks; it has none where rights are missing.
type racksView struct {
	Decides bool            `json:"decides"`
	Racks   []view.RackLine `json:"racks"`
}

// racks answers as `kubectl muster racks`.
func (s *Server) racks(_ context.Context, d *decision, _ *http.Request) (racksView, error) {
	return racksView{Decides: d.picture.Decides(), Racks: d.racks}, nil
}

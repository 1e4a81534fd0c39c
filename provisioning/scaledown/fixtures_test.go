package scaledown

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodegroups"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	uid   = types.UID("uid")
	token = "uid-1"
)

// whole is what a node of the fleet has.
var whole = nodegroups.Resources{"cpu": 96000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}

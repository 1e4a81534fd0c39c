package state

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The marks of clouds' agents for a coming interruption of a node's machine.
const (
	gkeMaintenanceTime = "cloud.google.com/scheduled-maintenance-time" // seconds since 1970
	gkeMaintenance     = "cloud.google.com/active-node-maintenance"
	gkeTermination     = "cloud.google.com/impending-node-termination"
	awsTermination     = "aws-node-termination-handler/"
)

// noticeAhead is how long before a planned interruption it counts. Until then, the machine is good enough for most gangs.
const noticeAhead = 24 * time.Hour

// NoticeOf describes an interruption of the node's machine that is near; empty for none.
func NoticeOf(o *corev1.Node, now time.Time) string {
	at := slices.IndexFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == gkeTermination || strings.HasPrefix(t.Key, awsTermination)
	})
	var planned string
	if seconds, err := strconv.ParseInt(o.Labels[gkeMaintenanceTime], 10, 64); err == nil {
		if when := time.Unix(seconds, 0).UTC(); now.After(when.Add(-noticeAhead)) {
			planned = fmt.Sprintf("label %s: maintenance at %s", gkeMaintenanceTime, when.Format(time.RFC3339))
		}
	}
	switch {
	case at >= 0:
		return "taint " + o.Spec.Taints[at].Key
	case o.Labels[gkeMaintenance] == "ONGOING":
		return "label " + gkeMaintenance + "=ONGOING"
	default:
		return planned
	}
}

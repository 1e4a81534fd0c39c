package controller

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/queueing/dispatch/controller/snapshots"
)

var (
	connectedClusters = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "muster_dispatch_connected",
		Help: "Whether muster dispatcher reaches a worker: 1 if it answered when it was last asked, else 0.",
	}, []string{"cluster"})
	nominations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_dispatch_nominations_total",
		Help: "Jobs for which a worker was nominated.",
	}, []string{"cluster"})
	refusals = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_dispatch_refusals_total",
		Help: "Jobs that were withdrawn from a worker, by its reason.",
	}, []string{"cluster", "reason"})
)

// Collectors are the metrics of the dispatcher.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{connectedClusters, snapshots.Foreseen, nominations, refusals}
}

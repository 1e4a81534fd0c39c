// Package controller carries out what package dispatch decides, in the cluster of a stock Kueue that is a manager of MultiKueue: it
// reads the workers through the kubeconfigs of their MultiKueueClusters, and writes status.nominatedClusterNames of the manager's
// Workloads. All else, such as the copies and their jobs, is Kueue's.
package controller

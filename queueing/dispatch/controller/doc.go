// Package controller executes the steps that package dispatch decides, in a manager cluster of MultiKueue. It reads the workers through
// the kubeconfigs of their MultiKueueClusters. Beside a stock Kueue it writes only status.nominatedClusterNames of the manager's
// Workloads, and Kueue creates the copies and their jobs. Where Muster queues, this package creates the copies and the jobs, and copies
// their status back.
package controller

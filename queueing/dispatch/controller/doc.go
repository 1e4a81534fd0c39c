// Package controller carries out what package dispatch decides, in a cluster that is a manager of MultiKueue: it reads the workers
// through the kubeconfigs of their MultiKueueClusters. Beside a stock Kueue it writes status.nominatedClusterNames of the manager's
// Workloads, and all else, such as the copies and their jobs, is Kueue's. Where Muster queues, it is the whole manager: it makes the
// copies, has the jobs run by them, and brings their status back.
package controller

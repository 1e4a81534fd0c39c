// Package gcp is the front end of a simulated Google Cloud: it serves the REST protocol of Compute Engine, the Billing Catalog and
// Resource Manager from a cloudsim.World, for the real client libraries.
//
// It uses Google's terms: a managed instance group (MIG) creates VMs from an instance template; every change returns an operation, which
// reports the result later; a resize request waits in the cloud's queue for all of its VMs at once. Unsupported calls and fields are
// refused in the cloud's own format, so that a caller's mistake fails here as it would in the cloud.
package gcp

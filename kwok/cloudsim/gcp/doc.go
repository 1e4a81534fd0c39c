// Package gcp is the front end of a simulated Google Cloud: it speaks the REST
// protocol of Compute Engine, of the Billing Catalog and of Resource Manager over a
// cloudsim.World, well enough that the real client libraries cannot tell.
//
// The words are Google's: a managed instance group (MIG) makes VMs from an instance
// template; an operation is what every change answers with, and tells later how it
// went; a resize request waits in the cloud's queue for all of its VMs at once. What
// a caller may get wrong here, it may get wrong there: calls and fields that are not
// known are refused in the cloud's own format.
package gcp

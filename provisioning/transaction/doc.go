// Package transaction decides the next step of a ProvisioningRequest: each is small, and
// may be repeated after a crash. The intent is written before a cloud is called, so an
// attempt is rolled back or carried on from its record alone.
package transaction

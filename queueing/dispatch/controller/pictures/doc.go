// Package pictures keeps of each worker of a manager what tells how a job would fare there, in as little memory as that takes: objects
// without what is never read, parts that are equal once, and pictures made of them for as long as jobs ask.
package pictures

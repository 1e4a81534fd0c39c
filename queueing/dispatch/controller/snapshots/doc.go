// Package snapshots keeps of each worker what the start of a job there depends on, in little memory: objects lose the fields that nothing
// reads, equal parts are stored once, and a forecast is built only while jobs need it.
package snapshots

package state

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Token names an attempt and its first call: the same attempt, the same machines.
func Token(uid types.UID, attempt int) string {
	return string(uid) + "-" + strconv.Itoa(attempt)
}

// AttemptToken returns the token of the attempt of a call's token.
func AttemptToken(token string) string {
	i := strings.LastIndexByte(token, '-')
	number, replacement, replaces := strings.Cut(token[i+1:], "r")
	if _, err := strconv.Atoi(number); i < 0 || !replaces || err != nil {
		return token
	}
	if _, err := strconv.Atoi(replacement); err != nil {
		return token
	}
	return token[:i+1] + number
}

// TokenUID returns the UID of the request of a token.
func TokenUID(token string) types.UID {
	if i := strings.LastIndexByte(token, '-'); i >= 0 {
		return types.UID(token[:i])
	}
	return types.UID(token)
}

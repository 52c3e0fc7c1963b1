package limiter

// leakyBucket is tokenBucket, whose B is what is in the bucket rather than what is missing from it. As a
// queue, which delays what it holds, a rate limit service can't offer one.
var leakyBucket = kernel{
	name:       "leaky_bucket",
	bucket:     true,
	check:      checkTokenBucket,
	roll:       rollTokenBucket,
	room:       roomTokenBucket,
	spend:      spendTokenBucket,
	resetAfter: tokenBucket.resetAfter,
	retryAfter: retryTokenBucket,
	expires:    expiresTokenBucket,
}

package config

// storeTiers are the tables [store.disk] and [store.s3]: where objects go that leave memory.
var storeTiers = []Field{
	{
		Name: "disk.dir", Kind: Text, Default: None,
		Doc:  "Folder on a local disk for kept prefixes that leave memory; \"none\" has no disk. No two owners share one. What is in it outlives the owner.",
		Tune: "A disk that reads faster than your engines compute the same tokens.",
	},
	{
		Name: "disk.bytes", Kind: Int, Default: int64(64 << 30), Unit: "bytes", Range: atLeast(64 << 20).atMost(1 << 50),
		Doc:  "Most that the folder takes. When it is full the oldest part of it goes, a thirty-second of it or 1 GiB at a time.",
		Tune: "Lower than what is free: a disk that is full is a miss (meridian_store_tier_operations_total), and may trouble others.",
	},
	{
		Name: "disk.timeout_ms", Kind: Int, Default: int64(1000), Unit: "ms", Range: atLeast(1).atMost(60000),
		Doc: "Longest that a read may take; then it is a miss. A disk that is late four times in a row is left alone for 5 s.",
	},
	{
		Name: "s3.endpoint", Kind: Text, Default: None,
		Rule: "with store.s3.bucket",
		Doc:  "Server of an S3 bucket for kept prefixes that leave memory: https://host, or http://host:port, which beyond loopback needs agent.insecure; \"none\" has none. Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from ~/.aws/credentials, or from the role of the machine.",
	},
	{
		Name: "s3.bucket", Kind: Text, Default: None,
		Doc: "Bucket, which must exist. Owners that name the same bucket and prefix find what the others put.",
	},
	{
		Name: "s3.prefix", Kind: Text, Default: "meridian",
		Doc:  "What the names of all objects in the bucket begin with.",
		Tune: "One for each cell: every writer there is trusted with all that its engines read.",
	},
	{
		Name: "s3.region", Kind: Text, Default: "us-east-1",
		Doc: "Region of the bucket; servers other than Amazon's mostly take any.",
	},
	{
		Name: "s3.bytes", Kind: Int, Default: int64(1 << 40), Unit: "bytes", Range: atLeast(128 << 20).atMost(1 << 56),
		Doc: "Most that is kept under the prefix, by all owners together; then the oldest goes.",
	},
	{
		Name: "s3.timeout_ms", Kind: Int, Default: int64(2000), Unit: "ms", Range: atLeast(1).atMost(60000),
		Doc: "Longest that a read may take; then it is a miss. A server that fails or is late four times in a row is left alone for 5 s.",
	},
	{
		Name: "s3.requests_per_second", Kind: Int, Default: int64(200), Unit: "requests", Range: atLeast(0).atMost(1000000),
		Doc: "Most requests that this owner makes in a second; what is beyond is a miss, or waits. 0: no bound.",
	},
	{
		Name: "s3.bytes_per_second", Kind: Int, Default: int64(0), Unit: "bytes", Range: atLeast(0).atMost(1 << 40),
		Doc:  "Most bytes that this owner moves to and from the server in a second. 0: no bound.",
		Tune: "Set it where traffic costs money, or the link is shared.",
	},
}

package api

// table holds what is served, and nothing else is advertised.
var table = map[int16]handler{}

func init() {
	for _, h := range []handler{
		produce, fetch, listOffsets, metadata, offsetCommit, offsetFetch, findCoordinator, joinGroup, heartbeat, leaveGroup,
		syncGroup, describeGroups, listGroups, apiVersions, createTopics, deleteTopics, deleteRecords, initProducerID, offsetForLeaderEpoch,
		describeConfigs, describeLogDirs, createPartitions, deleteGroups, incrementalAlterConfigs, offsetDelete, describeCluster,
		describeTopicPartitions,
		createMirror, startMirrorTopics, stopMirrorTopics, pauseMirrorTopics, resumeMirrorTopics, deleteMirror, listMirrors,
		describeMirrors, bumpLeaderEpochs, readMirrorStates, writeMirrorStates,
	} {
		table[h.key] = h
	}
	advertise()
}

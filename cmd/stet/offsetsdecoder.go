package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"stet/broker/mirrormsg"
)

// offsetsDecoder prints records of __consumer_offsets as Kafka's --offsets-decoder does.
func offsetsDecoder(offset int64, key, value []byte) (k, v string) {
	if len(key) < 2 {
		return fmt.Sprintf("Error at offset %d, skipping. Could not read version from key's buffer.", offset), ""
	}
	switch typ := int16(binary.BigEndian.Uint16(key)); typ {
	case 0, 1:
		var ok kmsg.OffsetCommitKey
		if err := ok.ReadFrom(key); err != nil {
			return "<" + err.Error() + ">", ""
		}
		k = jsonObject{{"group", ok.Group}, {"topic", ok.Topic}, {"partition", ok.Partition}}.wrap("type", strconv.Itoa(int(typ)))
		return k, orDelete(value, offsetValue)
	case 2:
		var gk kmsg.GroupMetadataKey
		if err := gk.ReadFrom(key); err != nil {
			return "<" + err.Error() + ">", ""
		}
		return jsonObject{{"group", gk.Group}}.wrap("type", "2"), orDelete(value, groupValue)
	default:
		return fmt.Sprintf("Unknown record type %d at offset %d, skipping.", typ, offset), ""
	}
}

func orDelete(value []byte, decode func([]byte) (string, error)) string {
	if value == nil {
		return "<DELETE>"
	}
	s, err := decode(value)
	if err != nil {
		return "<" + err.Error() + ">"
	}
	return s
}

func offsetValue(p []byte) (string, error) {
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(p); err != nil {
		return "", err
	}
	o := jsonObject{{"offset", v.Offset}}
	if v.Version >= 3 {
		o = append(o, jsonField{"leaderEpoch", v.LeaderEpoch})
	}
	o = append(o, jsonField{"metadata", v.Metadata}, jsonField{"commitTimestamp", v.CommitTimestamp})
	if v.Version == 1 {
		o = append(o, jsonField{"expireTimestamp", v.ExpireTimestamp})
	}
	if v.Version >= 4 && v.TopicID != ([16]byte{}) {
		o = append(o, jsonField{"topicId", mirrormsg.UUIDString(v.TopicID)})
	}
	return o.wrap("version", strconv.Itoa(int(v.Version))), nil
}

func groupValue(p []byte) (string, error) {
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(p); err != nil {
		return "", err
	}
	o := jsonObject{{"protocolType", v.ProtocolType}, {"generation", v.Generation}, {"protocol", v.Protocol}, {"leader", v.Leader}}
	if v.Version >= 2 {
		o = append(o, jsonField{"currentStateTimestamp", v.CurrentStateTimestamp})
	}
	members := make([]any, len(v.Members))
	for i := range v.Members {
		members[i] = memberObject(&v.Members[i], v.Version, v.ProtocolType == "consumer")
	}
	return append(o, jsonField{"members", members}).wrap("version", strconv.Itoa(int(v.Version))), nil
}

func memberObject(m *kmsg.GroupMetadataValueMember, version int16, consumer bool) jsonObject {
	o := jsonObject{{"memberId", m.MemberID}}
	if version >= 3 {
		o = append(o, jsonField{"groupInstanceId", m.InstanceID})
	}
	o = append(o, jsonField{"clientId", m.ClientID}, jsonField{"clientHost", m.ClientHost})
	if version >= 1 {
		o = append(o, jsonField{"rebalanceTimeout", m.RebalanceTimeoutMillis})
	}
	o = append(o, jsonField{"sessionTimeout", m.SessionTimeoutMillis})
	var sub, asg any = base64.StdEncoding.EncodeToString(m.Subscription), base64.StdEncoding.EncodeToString(m.Assignment)
	if consumer {
		if s, err := subscriptionObject(m.Subscription); err == nil {
			sub = s
		}
		if a, err := assignmentObject(m.Assignment); err == nil {
			asg = a
		}
	}
	return append(o, jsonField{"subscription", sub}, jsonField{"assignment", asg})
}

func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(b)
}

func subscriptionObject(p []byte) (jsonObject, error) {
	var s kmsg.ConsumerMemberMetadata
	if err := s.ReadFrom(p); err != nil {
		return nil, err
	}
	o := jsonObject{{"topics", append([]string{}, s.Topics...)}, {"userData", bytesOrNull(s.UserData)}}
	if s.Version >= 1 {
		owned := []any{}
		for _, t := range s.OwnedPartitions {
			owned = append(owned, jsonObject{{"topic", t.Topic}, {"partitions", append([]int32{}, t.Partitions...)}})
		}
		o = append(o, jsonField{"ownedPartitions", owned})
	}
	if s.Version >= 2 {
		o = append(o, jsonField{"generationId", s.Generation})
	}
	if s.Version >= 3 {
		o = append(o, jsonField{"rackId", s.Rack})
	}
	return o, nil
}

func assignmentObject(p []byte) (jsonObject, error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(p); err != nil {
		return nil, err
	}
	topics := []any{}
	for _, t := range a.Topics {
		topics = append(topics, jsonObject{{"topic", t.Topic}, {"partitions", append([]int32{}, t.Partitions...)}})
	}
	return jsonObject{{"assignedPartitions", topics}, {"userData", bytesOrNull(a.UserData)}}, nil
}

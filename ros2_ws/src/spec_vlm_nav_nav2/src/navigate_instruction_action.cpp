// Copyright 2026 spec_vlm_nav maintainers
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

#include "spec_vlm_nav_nav2/navigate_instruction_action.hpp"

#include <memory>
#include <string>

// Brings bt_factory.h of the BehaviorTree.CPP (3 or 4) that Nav2 was built with.
#include "nav2_behavior_tree/behavior_tree_engine.hpp"
#include "rclcpp/duration.hpp"

namespace spec_vlm_nav_nav2
{

NavigateInstructionAction::NavigateInstructionAction(
  const std::string & xml_tag_name,
  const std::string & action_name,
  const BT::NodeConfiguration & conf)
: nav2_behavior_tree::BtActionNode<Action>(xml_tag_name, action_name, conf)
{
}

void NavigateInstructionAction::on_tick()
{
  // An empty instruction would mean "stop" to the server, and succeed.
  std::string instruction;
  if (!getInput("instruction", instruction) || instruction.empty()) {
    throw BT::RuntimeError("NavigateInstruction needs a non-empty port instruction");
  }
  double time_allowance = 0.0;
  getInput("time_allowance", time_allowance);
  std::string success_hint;
  getInput("success_hint", success_hint);

  goal_.instruction = instruction;
  goal_.time_allowance = rclcpp::Duration::from_seconds(time_allowance);
  goal_.success_hint = success_hint;
}

BT::NodeStatus NavigateInstructionAction::on_success()
{
  tell_result();
  return BT::NodeStatus::SUCCESS;
}

BT::NodeStatus NavigateInstructionAction::on_aborted()
{
  tell_result();
  return BT::NodeStatus::FAILURE;
}

BT::NodeStatus NavigateInstructionAction::on_cancelled()
{
  // Also called by halt(), possibly without a result.
  tell(Action::Result::CANCELED, "canceled");
  return BT::NodeStatus::FAILURE;
}

void NavigateInstructionAction::on_timeout()
{
  tell(Action::Result::TIMEOUT, "navigate_instruction did not answer within server_timeout");
}

void NavigateInstructionAction::tell_result()
{
  tell(result_.result->error_code, result_.result->error_msg);
  setOutput("hint_met", static_cast<bool>(result_.result->hint_met));
  setOutput("distance_m", static_cast<double>(result_.result->distance_m));
}

void NavigateInstructionAction::tell(uint16_t code, const std::string & message)
{
  setOutput("error_code_id", code);
  setOutput("error_msg", message);
}

}  // namespace spec_vlm_nav_nav2

BT_REGISTER_NODES(factory)
{
  BT::NodeBuilder builder =
    [](const std::string & name, const BT::NodeConfiguration & config)
    {
      return std::make_unique<spec_vlm_nav_nav2::NavigateInstructionAction>(
        name, "navigate_instruction", config);
    };
  factory.registerBuilder<spec_vlm_nav_nav2::NavigateInstructionAction>(
    "NavigateInstruction", builder);
}
